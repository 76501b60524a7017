// The client of a lock service across a network: it acquires, renews and releases a lease there,
// and retries after transient failures. LeaseLock keeps the times, and ends a holder whose lease
// cannot be renewed.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "base/boot_clock.h"
#include "base/deadline.h"
#include "base/error.h"
#include "base/exit_status.h"
#include "base/units.h"
#include "lock/failover_lock.h"

namespace fo::lock {

/// The pauses between attempts to acquire, renew or release a lease.
inline constexpr base::Duration kFirstPause = std::chrono::milliseconds(50);
inline constexpr base::Duration kMaxPause = std::chrono::seconds(1);

/// A request that the lock service has answered. The service grants the lock to no other contender
/// before `sent` + `ttl`, because it cannot have begun the lease before the request was sent.
struct Renewal {
  base::BootClock::time_point sent;
  base::Duration ttl{};
};

/// A granted lock, and the renewal that determines how long it is held.
struct Lease {
  /// The same as Grant::generation.
  std::uint64_t generation = 0;
  std::chrono::system_clock::time_point granted_at;
  Renewal renewed;
};

/// The lock service reports that this process no longer has the lock.
struct LeaseEnded {
  /// kTryAgain if the lease expired or another contender has it; kProtocol if the lock service
  /// broke the protocol.
  base::ExitStatus status = base::ExitStatus::kTryAgain;
  std::string reason;
};

/// A transient failure, with the conditions of the next attempt.
class Postponed final : public base::Error {
 public:
  /// The lock service requests no further attempt for `pause`; `at_last` is the status if the
  /// failure persists.
  Postponed(const std::string& what, base::Duration pause,
            base::ExitStatus at_last = base::ExitStatus::kUnavailable)
      : Error(base::ExitStatus::kUnavailable, what), pause_(pause), at_last_(at_last) {}
  [[nodiscard]] base::Duration pause() const { return pause_; }
  [[nodiscard]] base::ExitStatus at_last() const { return at_last_; }

 private:
  base::Duration pause_;
  base::ExitStatus at_last_;
};

/// Every call runs on the same loop, one at a time. A call may be cancelled; only release() or
/// acquire() follows then.
class LeaseClient {
 public:
  LeaseClient() = default;
  LeaseClient(const LeaseClient&) = delete;
  LeaseClient& operator=(const LeaseClient&) = delete;
  virtual ~LeaseClient() = default;

  /// Waits for the lock without limit, and retries after transient failures, with pauses. Throws
  /// permanent failures (kConfig, kNotPermitted, kProtocol …), and kUnavailable if the lock service
  /// was not reached within kFirstContact of the first call. It may be called again after a lease
  /// has ended.
  boost::asio::awaitable<Lease> acquire();

  /// Renews the lease once. Throws kUnavailable or kTryAgain for a transient failure; the caller
  /// retries soon, with pauses. `deadline` is well before the end of the lease.
  virtual boost::asio::awaitable<std::variant<Renewal, LeaseEnded>> renew(
      base::Deadline deadline) = 0;

  /// Whether another client of the store can free the lock before the lease ends.
  [[nodiscard]] virtual bool can_be_freed_early() const { return true; }

  /// Releases the lock, or the place in the queue, if there is one, so that others need not wait
  /// until the lease expires. Throws the error of the last attempt if `deadline` passes.
  boost::asio::awaitable<void> release(base::Deadline deadline);

 protected:
  /// The result of a step: the lock, or when the next step is due.
  enum class Next { kAtOnce, kAfterPause };
  using Step = std::variant<Lease, Next>;
  /// One step towards the lock, or a wait for its next chance, during which it renews the place in
  /// the queue. It throws a transient failure as kUnavailable, kTryAgain or Postponed, and is then
  /// called again.
  virtual boost::asio::awaitable<Step> advance() = 0;
  /// Called before the first step.
  virtual void begin() {}
  /// One attempt of release(); false if it must be repeated.
  virtual boost::asio::awaitable<bool> try_release(base::Deadline deadline) = 0;
  /// Whether the lock service was ever reached; then it is expected to be reachable again.
  [[nodiscard]] virtual bool is_reached() const = 0;
  /// The longest pause between two attempts.
  [[nodiscard]] virtual base::Duration max_pause() const;

  /// `time` from now; before the first contact, kFirstContact after the first call of acquire() at
  /// the latest.
  [[nodiscard]] base::Deadline step_deadline(base::Duration time) const;

 private:
  // Set by the first call of acquire().
  std::optional<base::Deadline> reach_by_;
};

}  // namespace fo::lock
