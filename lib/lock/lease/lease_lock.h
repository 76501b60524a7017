// A failover lock that somebody across a network keeps, as a lease: it is held for as long as it is
// renewed, by a thread of its own, and given up by this side before it can end on the other. It
// says who leads, and nothing of memory: pair it with a lock of the node (lock_set.h).
#pragma once

#include <sys/timerfd.h>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "lock/failover_lock.h"
#include "lock/lease/lease_client.h"
#include "lock/lease/lease_times.h"
#include "os/log.h"

namespace fo::lock {

class LeaseLock final : public FailoverLock {
 public:
  /// `path` is the lock's name for messages. Throws kConfig for the id.
  LeaseLock(std::string path, std::string id, std::unique_ptr<LeaseClient> client);
  /// As release().
  ~LeaseLock() override;

  /// Throws what LeaseClient::acquire throws.
  Result acquire(const base::Deadline& deadline, int interrupt_fd = -1,
                 const os::Reminder& reminder = {}) override;

  [[nodiscard]] Watch watch() override;
  /// Lost when the keeper says so, then to end at once, and at two thirds of the lease when it
  /// could not be renewed, both kTryAgain; kProtocol for a keeper that broke the protocol.
  std::optional<Loss> check() override;
  /// While the last try to renew it succeeded.
  [[nodiscard]] bool is_confirmed() const override;
  /// A keeper that can't be told within two seconds lets it end by itself.
  void release() override;
  [[nodiscard]] std::vector<int> fds() const override { return {}; }

 private:
  // On this thread; nullopt when the deadline passed or `interrupted`.
  std::optional<Lease> wait(const base::Deadline& deadline, int interrupt_fd,
                            const os::Reminder& reminder, bool& interrupted);
  void start_renewing(const Renewal& first);
  void stop_renewing();
  boost::asio::awaitable<void> keep_renewing();
  // On this thread, for up to kReleaseTime; what goes wrong is logged.
  void tell_release(os::LogLevel level);
  struct Lost {
    // As they were then.
    LeaseTimes times;
    base::ExitStatus status = base::ExitStatus::kTryAgain;
    std::string reason;
    base::BootClock::time_point end_by;
    // The keeper said so; it may have done that since the last renewal.
    bool is_ended = false;
  };
  // With the mutex.
  [[nodiscard]] std::optional<Lost> look() const;
  // The watch's descriptor becomes ready then.
  void wake_at(base::BootClock::time_point time) const;
  void sleep_for_good() const;
  void arm(const itimerspec& at) const;

  // Runs on the thread that renews while the lock is held, and on the caller's otherwise.
  boost::asio::io_context loop_{1};
  boost::asio::cancellation_signal cancel_;
  std::unique_ptr<LeaseClient> client_;
  base::UniqueFd timer_fd_;
  std::thread thread_;
  bool is_held_ = false;
  std::optional<Lost> lost_;

  // What the two threads share.
  mutable std::mutex mutex_;
  std::optional<LeaseTimes> times_;
  // Why the last try to renew failed; empty: it did not.
  std::string error_text_;
  std::optional<LeaseEnded> ended_;
};

}  // namespace fo::lock
