// The end of a fo-shadow: why it ends, and in which order everything that it started ends. The
// lock is released last, after the engine and every descendant are gone.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <optional>

#include "base/deadline.h"
#include "base/error.h"
#include "engine/shadow/parts.h"
#include "lock/failover_lock.h"
#include "os/process/process.h"
#include "os/socket/status_fd.h"

namespace fo::engine {

class Ending {
 public:
  /// `parts` may be constructed later than this object, but before its first event. `grace` is the
  /// time from SIGTERM to SIGKILL for the engine.
  Ending(boost::asio::io_context& io, const os::StatusFd& events, base::Duration grace,
         const Parts& parts)
      : io_(io), events_(events), grace_(grace), parts_(parts) {}

  // The events. Only the first one decides the result; each may make the end more urgent.

  /// A signal requests the end; a second one kills the remaining processes.
  void request();
  void fail(base::Error error);
  /// A task has failed with this exception, which is ignored if it is null, or Ended.
  void fail(const std::exception_ptr& error);
  void engine_ended(os::WaitStatus status);
  /// The lock is lost. Called again with each new value.
  void lose(const lock::Loss& loss);

  /// Like fail(), after a short time in which the engine's death may be noticed: its exit status is
  /// a better reason than that it does not answer.
  boost::asio::awaitable<void> fail_after_death(base::Error error);

  /// When the loop has ended: the exit status, or the failure as an exception.
  int result();
  /// The end itself failed: kills the remaining processes and exits with kSoftware.
  [[noreturn]] void abort();

 private:
  struct Reason {
    int status = 0;
    /// nullopt if the end is not a failure of fo-shadow.
    std::optional<base::Error> failure;
    /// When the engine gets SIGKILL, if that is sooner than after the grace time.
    base::Deadline kill_at = base::Deadline::never();
  };

  void begin(Urgency urgency, Reason reason);
  void kill_all();
  boost::asio::awaitable<void> keep_killing();
  boost::asio::awaitable<void> finish();
  boost::asio::awaitable<void> end_engine();
  void report_end() const;

  boost::asio::io_context& io_;
  const os::StatusFd& events_;
  base::Duration grace_;
  Parts parts_;
  std::optional<Reason> reason_;
  /// The overlap of a lost lock, as last reported.
  std::optional<base::Duration> overlap_;
};

}  // namespace fo::engine
