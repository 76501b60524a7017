#include "gms/client/probe.h"

#include <nlohmann/json.hpp>

#include "base/deadline.h"
#include "base/error.h"
#include "gms/client/discover.h"
#include "gms/client/rpc_client.h"
#include "gms/protocol/endpoint.h"
#include "json/object.h"
#include "json/probe_result.h"

namespace fo::gms {
namespace {

using base::Deadline;

// The reason why the server at `path` fails the probe; nullopt if it passes.
std::optional<std::string> failure_of(const std::string& path, const SocketsProbe& probe) {
  try {
    RpcClient rpc = RpcClient::connect(path, Deadline::after(os::kProbeTime),
                                       RpcClient::Retry::kNever, probe.server_uid);
    if (rpc.runtime_state().committed || !probe.committed) return std::nullopt;
    return "GMS at " + base::quoted(path) + ": nothing is published";
  } catch (const RequestRefused& refusal) {
    return refusal.what();
  }
}

std::vector<base::DeviceOrdinal> expected_devices(const SocketsProbe& probe) {
  return probe.devices.empty() ? find_devices(probe.socket_dir, probe.tags) : probe.devices;
}

void ask_once(const SocketsProbe& probe, SocketsAnswer& answer) {
  const std::vector<base::DeviceOrdinal> devices = expected_devices(probe);
  for (const base::DeviceOrdinal device : devices) {
    for (const std::string& tag : probe.tags) {
      ++answer.sockets;
      const auto failure = failure_of(socket_link(probe.socket_dir, device, tag), probe);
      if (!failure) continue;
      answer.reason = *failure;
      return;
    }
  }
  if (devices.empty()) {
    answer.reason = "look for sockets in " + base::quoted(probe.socket_dir) + ": none found";
  } else if (expected_devices(probe) != devices) {
    // A server answers only when all links of its bundle exist, so the sockets found before the
    // answers may be incomplete, and those found now are all.
    answer.reason = "look for sockets in " + base::quoted(probe.socket_dir) + ": they change";
  } else {
    answer.yes = true;
  }
}

void check_once(const RemapProbe& probe, RemapAnswer& answer) {
  const RemapCheck check = check_remap(probe, Deadline::after(probe.timeout));
  answer.yes = check.outcome.result == RemapResult::kOk;
  answer.memory_layout_hash = check.memory_layout_hash;
  answer.reason = check.outcome.reason;
}

}  // namespace

SocketsAnswer probe_sockets(const SocketsProbe& probe) {
  return os::ask_until_yes(probe, ask_once);
}

std::string to_json(const SocketsAnswer& answer) {
  return json::probe_result(answer.yes, answer.reason, {{"sockets", answer.sockets}});
}

RemapAnswer probe_remap(const RemapProbe& probe) { return os::ask_until_yes(probe, check_once); }

std::string to_json(const RemapAnswer& answer) {
  const LayoutHash& hash = answer.memory_layout_hash;
  return json::probe_result(answer.yes, answer.reason,
                            {{"memory_layout_hash", json::or_null(!hash.empty(), hash.value())}});
}

}  // namespace fo::gms
