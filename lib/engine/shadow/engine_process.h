// The engine of one fo-shadow: its process and all descendants, and the steps that need both the
// process and its driver.
#pragma once

#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <functional>

#include "base/deadline.h"
#include "engine/device_gate.h"
#include "engine/drivers/driver.h"
#include "engine/shadow/course.h"
#include "engine/shadow/lock_holder.h"
#include "engine/shadow/shadow.h"
#include "loop/children.h"
#include "os/socket/status_fd.h"

namespace fo::engine {

class EngineProcess {
 public:
  /// `on_end` is called with the status of an engine that ended by itself. All references outlive
  /// this object.
  EngineProcess(const ShadowOptions& options, Course& course, loop::Children& children,
                EngineDriver& driver, DeviceGate& gate, const os::StatusFd& events,
                std::function<void(os::WaitStatus)> on_end);

  /// Starts the command; it inherits the lock, if there is one. Throws kNotFound, kCannotRun.
  void start(const LockHolder* lock);
  /// Waits until the engine's own health check succeeds. Throws kTryAgain at `deadline`, what
  /// EngineDriver::check_health throws, Ended.
  boost::asio::awaitable<void> until_healthy(base::Deadline deadline);
  /// Puts the engine to sleep. Unless the gate knows the size already, the memory that the engine
  /// releases is measured; the engines of a pair measure one after the other, because each would
  /// measure the other's memory, too. Throws what EngineDriver::sleep throws, Ended.
  boost::asio::awaitable<void> sleep(SleepMode mode);
  /// Has the engine generate a token. Throws kSoftware for a failure of the engine, kUnavailable
  /// if it does not answer, Ended.
  boost::asio::awaitable<void> prove(base::Deadline deadline);
  /// Waits until the engine works on no request, if it can report that, or until `deadline`.
  boost::asio::awaitable<void> until_idle(base::Deadline deadline);
  /// Ends the engine and every descendant on purpose; on_end() is not called. Throws Ended.
  boost::asio::awaitable<void> stop();
  /// Like stop(), at the end of this process: SIGKILL from `kill_at` on.
  boost::asio::awaitable<void> end_all(base::Deadline kill_at);
  /// Sends SIGKILL to the engine and every descendant.
  void kill() const;

  /// The engine's process; 0 if it does not run.
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool is_running() const { return pid_ != 0; }

 private:
  boost::asio::awaitable<void> sleep_unmeasured(SleepMode mode);
  void ended(os::WaitStatus status);

  const ShadowOptions& options_;
  Course& course_;
  loop::Children& children_;
  EngineDriver& driver_;
  DeviceGate& gate_;
  const os::StatusFd& events_;
  std::function<void(os::WaitStatus)> on_end_;
  pid_t pid_ = 0;
  bool is_stopping_ = false;
};

}  // namespace fo::engine
