// How a lock that somebody across a network keeps is taken, renewed and given up there. Time, and
// what becomes of a holder whose lease can't be renewed, are for LeaseLock.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <variant>

#include "base/boot_clock.h"
#include "base/deadline.h"
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

/// Every call runs on the same loop, one at a time. A call may be cancelled; only release() or
/// acquire() follows then.
class LeaseClient {
 public:
  LeaseClient() = default;
  LeaseClient(const LeaseClient&) = delete;
  LeaseClient& operator=(const LeaseClient&) = delete;
  virtual ~LeaseClient() = default;

  /// Waits for the lock, however long that takes; what a wait needs to stay in the queue is renewed
  /// in here, and what may pass is tried again. Throws what is wrong for good (kConfig,
  /// kNotPermitted, kProtocol …), and kUnavailable for a keeper that was not reached within
  /// kFirstContact of the first call. Called again after the end of a lease, it asks anew.
  virtual boost::asio::awaitable<Lease> acquire() = 0;

  /// Renews the lease once. Throws kUnavailable or kTryAgain for what may pass, with which it is
  /// called again soon, with pauses; `deadline` is well before the lease ends.
  virtual boost::asio::awaitable<std::variant<Renewal, LeaseEnded>> renew(
      base::Deadline deadline) = 0;

  /// Whether somebody who may write where the lock is kept can free it before the lease ends.
  [[nodiscard]] virtual bool can_be_freed_early() const { return true; }

  /// Gives up what there is, the lock or the place in the queue, so that others need not wait for
  /// its end; nothing to do is no error. Throws when the keeper could not be told by `deadline`.
  virtual boost::asio::awaitable<void> release(base::Deadline deadline) = 0;
};

}  // namespace fo::lock
