// A failover lock from a lock service across a network, as a lease. Its own thread renews it, and
// check() reports it as lost before the lock service can grant it to another contender. It elects a
// leader, and protects no memory: combine it with a lock of the node (lock_set.h).
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
  /// `path` is the lock's name for messages. Throws kConfig for an invalid id.
  LeaseLock(std::string path, std::string id, std::unique_ptr<LeaseClient> client);
  /// Like release().
  ~LeaseLock() override;

  /// Throws what LeaseClient::acquire throws.
  Result acquire(const base::Deadline& deadline, int interrupt_fd = -1,
                 const os::Reminder& reminder = {}) override;

  [[nodiscard]] Watch watch() override;
  /// Lost if the lock service reports it, with an immediate end, or at two thirds of the lease if
  /// it could not be renewed: kTryAgain. kProtocol if the lock service broke the protocol.
  std::optional<Loss> check() override;
  /// True if the last renewal succeeded.
  [[nodiscard]] bool is_confirmed() const override;
  /// If the lock service cannot be informed within two seconds, the lease expires by itself.
  void release() override;
  [[nodiscard]] std::vector<int> fds() const override { return {}; }

 private:
  // Runs on the calling thread; nullopt if the deadline passed, or if `interrupted`.
  std::optional<Lease> wait(const base::Deadline& deadline, int interrupt_fd,
                            const os::Reminder& reminder, bool& interrupted);
  void start_renewing(const Renewal& first);
  void stop_renewing();
  boost::asio::awaitable<void> keep_renewing();
  // Runs on the calling thread for up to kReleaseTime; failures are logged.
  void request_release(os::LogLevel level);
  struct Lost {
    // The times at the loss.
    LeaseTimes times;
    base::ExitStatus status = base::ExitStatus::kTryAgain;
    std::string reason;
    base::BootClock::time_point end_by;
    // The lock service reported it; another contender may have the lock since the last renewal.
    bool is_ended = false;
  };
  // The caller holds the mutex.
  [[nodiscard]] std::optional<Lost> find_loss() const;
  // The watch's descriptor becomes ready at `time`.
  void wake_at(base::BootClock::time_point time) const;
  void cancel_wake() const;
  void arm(const itimerspec& at) const;

  // Runs on the renewing thread while the lock is held, otherwise on the caller's.
  boost::asio::io_context loop_{1};
  boost::asio::cancellation_signal cancel_;
  std::unique_ptr<LeaseClient> client_;
  base::UniqueFd timer_fd_;
  std::thread thread_;
  bool is_held_ = false;
  std::optional<Lost> lost_;

  // Shared by the two threads.
  mutable std::mutex mutex_;
  std::optional<LeaseTimes> times_;
  // The reason why the last renewal failed; empty if it succeeded.
  std::string error_text_;
  std::optional<LeaseEnded> ended_;
};

}  // namespace fo::lock
