#include "engine/gms_watch.h"

#include <sys/socket.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "gms/client/remap_check.h"
#include "gms/client/remap_outcome.h"
#include "gms/client/rpc_client.h"
#include "loop/adopt.h"
#include "loop/blocking.h"
#include "loop/spawn.h"
#include "os/log.h"

namespace fo::engine {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using gms::RemapResult;
using gms::RpcClient;
using Descriptor = asio::posix::stream_descriptor;

// Time for which one attempt waits for a lock before it checks for cancellation.
constexpr base::Duration kSlice = std::chrono::milliseconds(500);
constexpr base::Duration kRetryInterval = std::chrono::milliseconds(50);

struct Held {
  RpcClient rpc;
  gms::LayoutHash hash;
};

// The conditions that the wait is for, besides the lock.
enum class WaitFor { kNone, kServer, kServerAndLayout };

struct Wanted {
  std::string socket;
  /// Empty: any layout.
  gms::LayoutHash hash;
  Deadline deadline = Deadline::never();
  WaitFor wait_for = WaitFor::kServer;

  [[nodiscard]] bool waits_out(RemapResult result) const {
    if (result == RemapResult::kConnectionFailed) return wait_for != WaitFor::kNone;
    return result == RemapResult::kTimedOut || wait_for == WaitFor::kServerAndLayout;
  }
};

// Tries once to acquire the lock and to compare the layout; the reason for a failure is in
// `outcome`.
std::optional<Held> try_to_hold(const Wanted& wanted, gms::RemapOutcome& outcome) {
  const std::string what = "GMS at " + base::quoted(wanted.socket);
  const Deadline slice = Deadline::after(kSlice).sooner(wanted.deadline);
  try {
    RpcClient rpc = RpcClient::connect(wanted.socket, slice);
    if (!rpc.request_lock(gms::LockType::kRo, slice).grant) {
      outcome = gms::no_lock_in_time(what);
      return std::nullopt;
    }
    rpc.set_deadline(Deadline::after(kSlice));
    gms::LayoutHash hash = rpc.layout_hash();
    outcome = gms::compare_layouts(what, hash, wanted.hash);
    if (outcome.result == RemapResult::kOk) return Held{std::move(rpc), std::move(hash)};
  } catch (const Error& error) {
    outcome = gms::outcome_of(error);
  }
  return std::nullopt;
}

// Repeats try_to_hold until it succeeds; nullopt if `called_off` is set first. Throws Error at the
// deadline, and for a failure that `wanted` does not wait out.
std::optional<Held> take_hold(const Wanted& wanted, const std::atomic<bool>& called_off) {
  for (bool is_reported = false;;) {
    gms::RemapOutcome outcome;
    if (std::optional<Held> held = try_to_hold(wanted, outcome)) return held;
    if (called_off) return std::nullopt;
    if (!wanted.waits_out(outcome.result) || wanted.deadline.expired()) {
      throw Error(gms::exit_status(outcome.result), outcome.reason);
    }
    if (outcome.result == RemapResult::kTimedOut) continue;
    if (!std::exchange(is_reported, true)) {
      os::log(os::LogLevel::kWarning, "{}; waiting for it", outcome.reason);
    }
    std::this_thread::sleep_for(kRetryInterval);
  }
}

}  // namespace

struct GmsWatch::State : std::enable_shared_from_this<GmsWatch::State> {
  struct Place {
    GmsPlace where;
    gms::LayoutHash hash;
    std::optional<RpcClient> rpc;
    /// A copy of the connection's socket, which the loop watches.
    std::optional<Descriptor> end;
  };

  asio::any_io_executor executor;
  std::vector<Place> held;
  base::Duration grace{};
  std::function<void(std::size_t, bool)> on_change;
  std::function<void(Error)> on_lost;
  std::atomic<bool> called_off = false;
  /// Incremented by release(), which ends the watches of the previous number.
  unsigned holding = 0;

  awaitable<std::optional<Held>> take(Wanted wanted) {
    // The thread keeps the state alive, because it may outlive the watch.
    auto self = shared_from_this();
    std::function<std::optional<Held>()> body = [self, wanted = std::move(wanted)] {
      return take_hold(wanted, self->called_off);
    };
    co_return co_await loop::run_blocking<std::optional<Held>>(std::move(body));
  }

  void adopt(std::size_t i, Held got) {
    Place& place = held[i];
    const std::string what = "watch the GMS at " + base::quoted(place.where.socket);
    place.end.emplace(executor);
    loop::adopt(*place.end, loop::duplicate(got.rpc.fd(), what), what);
    place.hash = std::move(got.hash);
    place.rpc.emplace(std::move(got.rpc));
    on_change(i, true);
  }

  void drop(std::size_t i) {
    Place& place = held[i];
    if (!place.rpc) return;
    boost::system::error_code ignored;
    place.end->close(ignored);
    place.end.reset();
    place.rpc.reset();
    on_change(i, false);
  }
};

namespace {

// A server sends nothing unasked, so readable means the end of the connection.
template <typename State>
awaitable<void> watch(std::shared_ptr<State> state, std::size_t i) {
  auto& place = state->held[i];
  const unsigned holding = state->holding;
  for (;;) {
    boost::system::error_code error;
    co_await place.end->async_wait(Descriptor::wait_read,
                                   asio::redirect_error(asio::use_awaitable, error));
    if (error || holding != state->holding) co_return;
    // A wake-up may be spurious.
    char byte = 0;
    const ssize_t got = ::recv(place.rpc->fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    state->drop(i);
    os::log(os::LogLevel::kWarning, "GMS at {}: the connection broke; waiting for a reconnection",
            base::quoted(place.where.socket));
    std::optional<Error> failure;
    try {
      const Wanted wanted{place.where.socket, place.hash, Deadline::after(state->grace),
                          WaitFor::kServerAndLayout};
      std::optional<Held> back = co_await state->take(wanted);
      if (!back || holding != state->holding) co_return;
      state->adopt(i, std::move(*back));
      os::log(os::LogLevel::kWarning, "GMS at {}: reconnected with the same layout",
              base::quoted(place.where.socket));
    } catch (const Error& error_caught) {
      failure.emplace(error_caught);
    }
    if (!failure) continue;
    if (holding == state->holding) {
      state->on_lost(Error(ExitStatus::kUnavailable, std::string("lost the weights: ") +
                                                         failure->what() + ", within " +
                                                         base::format_duration(state->grace)));
    }
    co_return;
  }
}

}  // namespace

GmsWatch::GmsWatch(asio::any_io_executor executor, std::vector<GmsPlace> places,
                   base::Duration grace, std::function<void(std::size_t, bool)> on_change,
                   std::function<void(Error)> on_lost)
    : state_(std::make_shared<State>()) {
  state_->executor = std::move(executor);
  for (GmsPlace& place : places) state_->held.push_back({std::move(place), {}, {}, {}});
  state_->grace = grace;
  state_->on_change = std::move(on_change);
  state_->on_lost = std::move(on_lost);
}

GmsWatch::~GmsWatch() {
  state_->called_off = true;
  state_->on_change = [](std::size_t, bool) {};
  state_->on_lost = [](const Error&) {};
  release();
}

awaitable<void> GmsWatch::learn(Deadline deadline) {
  const std::shared_ptr<State> state = state_;
  for (auto& place : state->held) {
    const Wanted wanted{place.where.socket, {}, deadline, WaitFor::kServer};
    std::optional<Held> got = co_await state->take(wanted);
    if (got) place.hash = std::move(got->hash);
  }
}

awaitable<void> GmsWatch::hold(Deadline deadline) {
  const std::shared_ptr<State> state = state_;
  const unsigned holding = state->holding;
  for (std::size_t i = 0; i < state->held.size(); ++i) {
    const Wanted wanted{state->held[i].where.socket, state->held[i].hash, deadline,
                        WaitFor::kServer};
    std::optional<Held> got = co_await state->take(wanted);
    if (!got || holding != state->holding) co_return;
    state->adopt(i, std::move(*got));
    loop::spawn(state->executor, watch(state, i), [state](const std::exception_ptr& failure) {
      if (failure) state->on_lost(Error(ExitStatus::kSoftware, "watch a GMS: it failed"));
    });
  }
}

awaitable<void> GmsWatch::check(Deadline deadline) {
  const std::shared_ptr<State> state = state_;
  for (const auto& place : state->held) {
    const Wanted wanted{place.where.socket, place.hash, deadline, WaitFor::kNone};
    co_await state->take(wanted);
  }
}

void GmsWatch::forget() {
  for (auto& place : state_->held) place.hash = {};
}

void GmsWatch::release() {
  ++state_->holding;
  for (std::size_t i = 0; i < state_->held.size(); ++i) state_->drop(i);
}

const gms::LayoutHash& GmsWatch::layout_hash(std::size_t i) const { return state_->held[i].hash; }

bool GmsWatch::is_up(std::size_t i) const { return state_->held[i].rpc.has_value(); }

}  // namespace fo::engine
