// The lock of one engine on its event loop: acquired on a thread, watched while it is held, and
// released.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "engine/shadow/course.h"
#include "lock/failover_lock.h"
#include "lock/holder_report.h"

namespace fo::engine {

class LockHolder {
 public:
  /// While the lock is held, `on_loss` is called after each check that finds it lost, and
  /// `on_failure` if the watch itself fails. `report` is called every `report_interval` of a wait
  /// (zero: never).
  LockHolder(boost::asio::any_io_executor executor, Course& course,
             std::unique_ptr<lock::FailoverLock> lock, lock::HolderReport report,
             base::Duration report_interval, std::function<void(const lock::Loss&)> on_loss,
             std::function<void(const std::exception_ptr&)> on_failure);

  /// Waits for the lock, until the end of the course at the latest; the caller checks that. Throws
  /// what the lock throws.
  boost::asio::awaitable<lock::FailoverLock::Result> acquire();
  /// Watches the lock from its grant on. Calls on_loss() and notifies the course.
  void watch();
  /// Waits until the lock is confirmed to be held. Throws kTryAgain at `deadline`, Ended.
  boost::asio::awaitable<void> until_confirmed(base::Deadline deadline);
  /// Ends the watch and releases the lock, on a thread: a lock service across a network takes time.
  boost::asio::awaitable<void> release();
  /// Ends the watch and this process's share of the lock. False if a thread that waits for the lock
  /// does not return by `deadline`, because the lock's file system hangs; then nothing was closed.
  boost::asio::awaitable<bool> close(base::Deadline deadline);

  [[nodiscard]] bool is_confirmed() const { return lock_->is_confirmed(); }
  [[nodiscard]] const std::string& path() const { return lock_->path(); }
  /// The descriptors and variables that the engine inherits.
  [[nodiscard]] std::vector<int> fds() const { return lock_->fds(); }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> environment() const {
    return lock::inheritance_of(*lock_);
  }

 private:
  enum class State {
    kReleased,   // also before the first acquire()
    kAcquiring,  // a thread waits for the lock
    kHeld,       // also after a loss
    kWatched,    // held, and the watch runs
  };

  boost::asio::awaitable<void> run_watch();
  boost::asio::awaitable<void> end_watch();
  void enter(State state);

  boost::asio::any_io_executor executor_;
  Course& course_;
  std::unique_ptr<lock::FailoverLock> lock_;
  lock::HolderReport report_;
  base::Duration report_interval_;
  std::function<void(const lock::Loss&)> on_loss_;
  std::function<void(const std::exception_ptr&)> on_failure_;
  State state_ = State::kReleased;
  boost::asio::cancellation_signal stop_watch_;
};

}  // namespace fo::engine
