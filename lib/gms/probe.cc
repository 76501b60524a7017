#include "gms/probe.h"

#include <poll.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/deadline.h"
#include "base/error.h"
#include "gms/discover.h"
#include "gms/endpoint.h"
#include "gms/rpc_client.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::ExitStatus;

constexpr base::Duration kAnswerTime = std::chrono::seconds(1);
constexpr base::Duration kInterval = std::chrono::milliseconds(50);

// Why the server at `path` does not do; nullopt when it does.
std::optional<std::string> failure_of(const std::string& path, bool committed) {
  try {
    RpcClient rpc = RpcClient::connect(path, Deadline::after(kAnswerTime));
    if (rpc.runtime_state().committed || !committed) return std::nullopt;
    return "GMS at " + base::quoted(path) + ": nothing is published";
  } catch (const RequestRefused& refusal) {
    return refusal.what();
  } catch (const base::Error& error) {
    const ExitStatus status = error.status();
    if (status != ExitStatus::kUnavailable && status != ExitStatus::kTryAgain &&
        status != ExitStatus::kProtocol) {
      throw;
    }
    return error.what();
  }
}

std::vector<int> expected_devices(const SocketsProbe& probe) {
  return probe.devices.empty() ? find_devices(probe.socket_dir, probe.tags) : probe.devices;
}

SocketsAnswer ask_once(const SocketsProbe& probe) {
  SocketsAnswer answer;
  const std::vector<int> devices = expected_devices(probe);
  for (const int device : devices) {
    for (const std::string& tag : probe.tags) {
      ++answer.sockets;
      const auto failure = failure_of(socket_link(probe.socket_dir, device, tag), probe.committed);
      if (!failure) continue;
      answer.reason = *failure;
      return answer;
    }
  }
  if (devices.empty()) {
    answer.reason = "look for sockets in " + base::quoted(probe.socket_dir) + ": none there";
  } else if (expected_devices(probe) != devices) {
    // A server answers only once every link of its bundle is there, so what was found before the
    // answers may have been a part of them, and what is found now is all.
    answer.reason = "look for sockets in " + base::quoted(probe.socket_dir) + ": they change";
  } else {
    answer.yes = true;
  }
  return answer;
}

}  // namespace

SocketsAnswer probe_sockets(const SocketsProbe& probe) {
  const Deadline deadline = Deadline::after(probe.wait);
  for (;;) {
    SocketsAnswer answer = ask_once(probe);
    if (answer.yes || deadline.expired()) return answer;
    ::poll(nullptr, 0, Deadline::after(kInterval).sooner(deadline).poll_timeout());
  }
}

std::string to_json(const SocketsAnswer& answer) {
  nlohmann::json out{{"result", answer.yes ? "yes" : "no"}, {"sockets", answer.sockets}};
  if (!answer.yes) out["reason"] = answer.reason;
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace fo::gms
