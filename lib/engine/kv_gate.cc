#include "engine/kv_gate.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "gms/client/rpc_client.h"
#include "loop/blocking.h"
#include "loop/pause.h"
#include "os/log.h"

namespace fo::engine {
namespace {

using base::Deadline;
using boost::asio::awaitable;
using State = std::optional<gms::GetRuntimeStateResponse>;

// A server answers at once.
constexpr base::Duration kKvAnswerTime = std::chrono::seconds(1);
// There is no event for a released lock except the lock itself, and acquiring it would drop a
// sealed layout.
constexpr base::Duration kKvQueryInterval = std::chrono::milliseconds(20);

// The state of the server at `socket`; nullopt if it does not answer.
awaitable<State> query(std::string socket) {
  std::function<State()> body = [socket = std::move(socket)]() -> State {
    try {
      const Deadline deadline = Deadline::after(kKvAnswerTime);
      return gms::RpcClient::connect(socket, deadline).runtime_state();
    } catch (const base::Error&) {
      return std::nullopt;
    }
  };
  State state = co_await loop::run_blocking<State>(std::move(body));
  co_return state;
}

}  // namespace

awaitable<bool> KvGate::is_served() {
  for (const GmsPlace& place : places_) {
    const State state = co_await query(place.socket);
    if (state) co_return true;
  }
  co_return false;
}

awaitable<std::map<base::DeviceOrdinal, base::ByteCount>> KvGate::settle(Deadline deadline) {
  std::map<base::DeviceOrdinal, base::ByteCount> sizes;
  for (const GmsPlace& place : places_) {
    State state = co_await query(place.socket);
    while (state && state->has_rw_session) {
      if (deadline.expired()) {
        throw base::Error(base::ExitStatus::kTryAgain, "wait for the KV memory at " +
                                                           base::quoted(place.socket) +
                                                           ": an engine still holds it");
      }
      co_await loop::pause_for(kKvQueryInterval);
      state = co_await query(place.socket);
    }
    // A sealed layout stays, for the next engine to adopt.
    if (!state || state->layout_committed) continue;
    if (!state->released_bytes) {
      os::log(os::LogLevel::kWarning,
              "the GMS at {} does not report how much KV memory it released: fo-shadow waits "
              "only for the memory that the engine itself released",
              base::quoted(place.socket));
      continue;
    }
    if (*state->released_bytes > 0) {
      sizes[place.device] = static_cast<base::ByteCount>(*state->released_bytes);
    }
  }
  co_return sizes;
}

}  // namespace fo::engine
