// How a lock that somebody across a network keeps is taken, renewed and given up there: what may
// pass is tried again here, for all of them. Time, and what becomes of a holder whose lease can't
// be renewed, are for LeaseLock.
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

/// A request that the keeper of the lock has answered: nobody else is granted the lock before
/// `sent` + `ttl`, for it can't have begun to count before the request was sent.
struct Renewal {
  base::BootClock::time_point sent;
  base::Duration ttl{};
};

/// What a Grant tells of a lock, and until when nobody else is granted it.
struct Lease {
  /// As Grant has it.
  std::uint64_t generation = 0;
  std::chrono::system_clock::time_point granted_at;
  Renewal renewed;
};

/// The keeper says that the lock is not ours any more.
struct LeaseEnded {
  /// kTryAgain for one that expired or went to another; kProtocol for a keeper that broke it.
  base::ExitStatus status = base::ExitStatus::kTryAgain;
  std::string reason;
};

/// A failure that may pass, with what the next try has to know of it.
class Postponed final : public base::Error {
 public:
  /// The keeper asks not to be asked again for `pause`; `at_last` is the status of a failure that
  /// did not pass in time.
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

  /// Waits for the lock, however long that takes; what may pass is tried again, with pauses. Throws
  /// what is wrong for good (kConfig, kNotPermitted, kProtocol …), and kUnavailable for a keeper
  /// that was not reached within kFirstContact of the first call. Called again after the end of a
  /// lease, it asks anew.
  boost::asio::awaitable<Lease> acquire();

  /// Renews the lease once. Throws kUnavailable or kTryAgain for what may pass, with which it is
  /// called again soon, with pauses; `deadline` is well before the lease ends.
  virtual boost::asio::awaitable<std::variant<Renewal, LeaseEnded>> renew(
      base::Deadline deadline) = 0;

  /// Whether somebody who may write where the lock is kept can free it before the lease ends.
  [[nodiscard]] virtual bool can_be_freed_early() const { return true; }

  /// Gives up what there is, the lock or the place in the queue, so that others need not wait for
  /// its end; nothing to do is no error. Throws when the keeper could not be told by `deadline`.
  boost::asio::awaitable<void> release(base::Deadline deadline);

 protected:
  /// What a step came to: the lock, or when the next step is due.
  enum class Next { kAtOnce, kAfterPause };
  using Step = std::variant<Lease, Next>;
  /// One step towards the lock, with a wait where there is nothing to do; what a wait needs to stay
  /// in the queue is renewed in here. It is called again after what may pass, which is thrown as
  /// kUnavailable, kTryAgain or Postponed.
  virtual boost::asio::awaitable<Step> advance() = 0;
  /// Before the first step.
  virtual void begin() {}
  /// One try of release(); false: there is to be another.
  virtual boost::asio::awaitable<bool> give_up(base::Deadline deadline) = 0;
  /// Whether the keeper was ever spoken to: then it will be back.
  [[nodiscard]] virtual bool is_reached() const = 0;
  /// Between two tries for the lock.
  [[nodiscard]] virtual base::Duration longest_pause() const;

  /// Within `time`, and until the keeper was reached not beyond kFirstContact.
  [[nodiscard]] base::Deadline step_deadline(base::Duration time) const;

 private:
  // From the first call of acquire() on.
  std::optional<base::Deadline> reach_by_;
};

}  // namespace fo::lock
