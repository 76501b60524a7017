// What one server process counts, for GET /metrics (metrics.h). In memory that the parent makes
// before it forks the server, so that the numbers outlive a crash of it, and that another process
// reads without asking anybody.
//
//   parent   auto page = CounterPage::create();           one per server, before the fork
//            page->restarts.add(); page->reset_gauges();  when the server's process has crashed
//   server   page->up.set(1);                             once it answers, and the other gauges
//            page->sessions[Grant::kRo].set(readers);     after every change of the model
//            page->observe_request(took, answered);       once per answer sent
//   metrics  metrics_text({{device, uuid, tag, &*page}})  in a child forked by the parent
//
// Each number is right by itself; two of them may be a moment apart.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/units.h"
#include "gms/protocol/types.h"
#include "metrics/numbers.h"

namespace fo::gms {

using metrics::Counter;
using metrics::Gauge;
using metrics::Histogram;

/// One number for each enumerator of an enum that counts 0, 1, 2 … up to `kLast`.
template <typename Number, typename Enum, Enum kLast>
class PerEnum {
 public:
  static constexpr std::size_t kSize = static_cast<std::size_t>(kLast) + 1;
  Number& operator[](Enum which) { return numbers_[static_cast<std::size_t>(which)]; }
  const Number& operator[](Enum which) const { return numbers_[static_cast<std::size_t>(which)]; }

  /// `visit(enumerator, number)` for each, in order.
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

/// A lock is had at once, or waited for as long as a load of weights takes.
inline constexpr std::array<base::Duration, 12> kLockWaitBounds{
    std::chrono::microseconds(100), std::chrono::milliseconds(1),   std::chrono::milliseconds(10),
    std::chrono::milliseconds(100), std::chrono::milliseconds(500), std::chrono::seconds(1),
    std::chrono::seconds(5),        std::chrono::seconds(10),       std::chrono::seconds(30),
    std::chrono::minutes(1),        std::chrono::minutes(5),        std::chrono::minutes(30)};

/// How a request ended: with what was asked for, or with an error_response.
enum class RequestResult { kAnswered, kRefused };

/// Why a client's connection was ended that would rather have gone on.
enum class DropReason {
  kFrameTooBig,
  /// No frame of the protocol, or an unknown type.
  kMalformed,
  /// A first message of another protocol than this one.
  kOtherProtocol,
  /// Sent no first message, or not the rest of one, in time.
  kSilent,
  /// Did not take its answer in time.
  kSlowReader,
  /// A process of a user who is not let in.
  kRefusedUser,
  kTooManyConnections
};

struct ServerCounters {
  // Gauges: what is, all set by the server, to be reset when it crashed.
  /// 1 while the server answers.
  Gauge up;
  /// Granted, by mode.
  PerEnum<Gauge, Grant, Grant::kRwData> sessions;
  /// For a lock, by what was asked for.
  PerEnum<Gauge, LockType, LockType::kRwDataOrRw> waiting;
  /// Open sockets, those that have not shaken hands too.
  Gauge connections;
  Gauge allocations;
  /// Of them, as aligned.
  Gauge allocated_bytes;
  /// 1 while a layout is published.
  Gauge committed;
  /// 1 while the parent holds the published layout against a crash of the server.
  Gauge is_protected;

  // Counters: what happened since the parent started.
  PerEnum<Counter, Grant, Grant::kRwData> grants;
  PerEnum<Counter, LockType, LockType::kRwDataOrRw> lock_timeouts;
  PerEnum<Counter, RequestResult, RequestResult::kRefused> requests;
  /// From a request's last byte to its answer's last byte.
  Histogram<kRequestBounds> request_latency;
  /// From the handshake to the grant; only waits that ended with one.
  Histogram<kLockWaitBounds> lock_wait;
  /// Repeated tries of allocations for which the device had no memory.
  Counter oom_retries;
  /// Allocations that were refused in the end for want of memory.
  Counter oom_refusals;
  /// Descriptors of memory handed out.
  Counter exports;
  Counter commits;
  Counter seals;
  Counter layouts_dropped;
  /// Processes started in place of one that crashed. Counted by the parent.
  Counter restarts;
  PerEnum<Counter, DropReason, DropReason::kTooManyConnections> dropped_connections;
  /// Messages of clients that came with descriptors, which were dropped.
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

  /// Nobody is served by a server that is no more.
  void reset_gauges();
};

/// The memory of one server's counters, shared with every process forked after it was made, and
/// mapped as long as any of them lives.
class CounterPage {
 public:
  /// All zero. Throws Error(kOsError).
  static CounterPage create();
  CounterPage(CounterPage&& other) noexcept : counters_(std::exchange(other.counters_, nullptr)) {}
  CounterPage& operator=(CounterPage&& other) noexcept {
    std::swap(counters_, other.counters_);
    return *this;
  }
  CounterPage(const CounterPage&) = delete;
  CounterPage& operator=(const CounterPage&) = delete;
  ~CounterPage();

  ServerCounters& operator*() const { return *counters_; }
  ServerCounters* operator->() const { return counters_; }

 private:
  explicit CounterPage(ServerCounters* counters) : counters_(counters) {}
  ServerCounters* counters_;
};

}  // namespace fo::gms
