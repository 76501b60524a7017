// The counters of one server process, for GET /metrics (metrics.h). They are in memory that the
// parent maps before it forks the server, so that they survive a crash and another process can read
// them.
//
//   parent   auto page = create_counter_page();           one per server, before the fork
//            page->restarts.add(); page->reset_gauges();  when the server's process has crashed
//   server   page->up.set(1);                             once it answers, and the other gauges
//            page->sessions[Grant::kRo].set(readers);     after every change of the model
//            page->observe_request(took, answered);       once per answer sent
//   metrics  metrics_text({{device, uuid, tag, &*page}})  in a child forked by the parent
//
// Each number is consistent by itself; two of them may be read at slightly different times.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>

#include "base/units.h"
#include "gms/protocol/types.h"
#include "metrics/numbers.h"

namespace fo::gms {

using metrics::Counter;
using metrics::Gauge;
using metrics::Histogram;

/// One number for each enumerator of an enum with values 0, 1, 2 … up to `kLast`.
template <typename Number, typename Enum, Enum kLast>
class PerEnum {
 public:
  static constexpr std::size_t kSize = static_cast<std::size_t>(kLast) + 1;
  Number& operator[](Enum which) { return numbers_[static_cast<std::size_t>(which)]; }
  const Number& operator[](Enum which) const { return numbers_[static_cast<std::size_t>(which)]; }

  /// Calls `visit(enumerator, number)` for each, in order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::size_t i = 0; i < kSize; ++i) visit(static_cast<Enum>(i), numbers_[i]);
  }
  void reset() {
    for (Number& number : numbers_) number.set(0);
  }

 private:
  std::array<Number, kSize> numbers_;
};

/// From 10 us to 10 s.
inline constexpr std::array<base::Duration, 13> kRequestBounds{
    std::chrono::microseconds(10),    std::chrono::microseconds(25),
    std::chrono::microseconds(50),    std::chrono::microseconds(100),
    std::chrono::microseconds(250),   std::chrono::microseconds(500),
    std::chrono::milliseconds(1),     std::chrono::milliseconds(5),
    std::chrono::milliseconds(10),    std::chrono::milliseconds(100),
    std::chrono::milliseconds(1000),  std::chrono::milliseconds(5000),
    std::chrono::milliseconds(10'000)};

/// A lock is granted at once, or after as long as loading weights takes.
inline constexpr std::array<base::Duration, 12> kLockWaitBounds{
    std::chrono::microseconds(100), std::chrono::milliseconds(1),   std::chrono::milliseconds(10),
    std::chrono::milliseconds(100), std::chrono::milliseconds(500), std::chrono::seconds(1),
    std::chrono::seconds(5),        std::chrono::seconds(10),       std::chrono::seconds(30),
    std::chrono::minutes(1),        std::chrono::minutes(5),        std::chrono::minutes(30)};

/// The result of a request: its response, or an error_response.
enum class RequestResult { kAnswered, kRefused };

/// The reason why the server closed a client's connection.
enum class DropReason {
  kFrameTooBig,
  /// Not a frame of the protocol, or an unknown type.
  kMalformed,
  /// A first message of another protocol.
  kOtherProtocol,
  /// No first message, or an incomplete one, in time.
  kSilent,
  /// Did not read its answer in time.
  kSlowReader,
  /// A process of a user who is not accepted.
  kRefusedUser,
  kTooManyConnections
};

struct ServerCounters {
  // Gauges: the current state, set by the server and reset after a crash.
  /// 1 while the server answers.
  Gauge up;
  /// 1 once it also has its snapshot, if it is to get one. Set by the parent.
  Gauge ready;
  /// Sessions with a grant, by mode.
  PerEnum<Gauge, Grant, Grant::kRwData> sessions;
  /// Sessions that wait for a lock, by the requested type.
  PerEnum<Gauge, LockType, LockType::kRwDataOrRw> waiting;
  /// Open sockets, including those before the handshake.
  Gauge connections;
  Gauge allocations;
  /// Their aligned size.
  Gauge allocated_bytes;
  /// 1 while a layout is published.
  Gauge committed;
  /// 1 while the parent keeps the published layout in case the server crashes.
  Gauge is_protected;

  // Counters: events since the parent started.
  PerEnum<Counter, Grant, Grant::kRwData> grants;
  PerEnum<Counter, LockType, LockType::kRwDataOrRw> lock_timeouts;
  PerEnum<Counter, RequestResult, RequestResult::kRefused> requests;
  /// From a request's last byte to its answer's last byte.
  Histogram<kRequestBounds> request_latency;
  /// From the handshake to the grant; only waits that ended with one.
  Histogram<kLockWaitBounds> lock_wait;
  /// Retries of allocations after the device was out of memory.
  Counter oom_retries;
  /// Allocations that were refused because the device stayed out of memory.
  Counter oom_refusals;
  /// Descriptors of memory sent to clients.
  Counter exports;
  Counter commits;
  Counter seals;
  Counter layouts_dropped;
  /// Processes started after a crash. Counted by the parent.
  Counter restarts;
  PerEnum<Counter, DropReason, DropReason::kTooManyConnections> dropped_connections;
  /// Messages of clients with unexpected descriptors, which were closed.
  Counter unexpected_fds;

  void granted(Grant grant, base::Duration waited) {
    grants[grant].add();
    lock_wait.observe(waited);
  }
  void observe_request(base::Duration took, RequestResult result) {
    requests[result].add();
    request_latency.observe(took);
  }
  void dropped(DropReason reason) { dropped_connections[reason].add(); }

  /// Resets the state of a server that has ended.
  void reset_gauges();
};

struct UnmapCounters {
  void operator()(ServerCounters* counters) const;
};
/// The memory of one server's counters, shared with every process that is forked afterwards, and
/// mapped while any of them lives.
using CounterPage = std::unique_ptr<ServerCounters, UnmapCounters>;
/// All counters are zero. Throws Error(kOsError).
CounterPage create_counter_page();

}  // namespace fo::gms
