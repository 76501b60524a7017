// The frame of a daemon on one loop: the signals that end it, its ready descriptor, and the service
// manager, which is notified that it is ready, alive and stopping.
//
//   loop::Daemon daemon(config.ready_fd);   first: before threads, children and the loop
//   loop::spawn(io, daemon.run(on_stop));   the loop's first task; ends with the loop
//   daemon.ready();                         when clients are served
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string_view>

#include "base/unique_fd.h"
#include "os/socket/notify.h"
#include "os/socket/ready_fd.h"

namespace fo::loop {

/// The way in which a daemon has to end.
enum class Stop {
  kGracefully,  // it accepts nothing more, and finishes what is in progress within a bound
  kNow
};

class Daemon {
 public:
  /// Blocks the signals that end a daemon (os::open_ending_signals) and removes the service
  /// manager's variables from the environment. `ready_fd` is that of os::ReadyFd; -1 for none.
  /// Throws Error(kUsage) if it is invalid.
  explicit Daemon(int ready_fd = -1);
  /// The same for a daemon with loop::Children: blocks SIGCHLD, too, which they need in every
  /// thread.
  static Daemon for_children();

  /// Calls `on_stop` for each signal: kGracefully for the first one, kNow once the daemon is
  /// stopping; and `on_reload`, if there is one, for SIGHUP instead. Notifies the service manager's
  /// watchdog in time. Never ends; this object outlives the loop.
  boost::asio::awaitable<void> run(std::function<void(Stop)> on_stop,
                                   std::function<void()> on_reload = {});

  /// Writes `line` to the ready descriptor, the first time, and notifies the service manager.
  void ready(std::string_view line = "\n");
  /// Sets the line that the service manager shows as the daemon's status.
  void status(std::string_view text) const { notifier_.status(text); }
  /// Notifies the service manager of the end. The first signal does this; call it for an end for
  /// another reason. Later calls do nothing.
  void begin_stop();

  [[nodiscard]] bool is_stopping() const { return stopping_; }
  /// True from ready() until the daemon is stopping, as GET /ready reports it.
  [[nodiscard]] bool is_ready() const { return ready_ && !stopping_; }

 private:
  // Declared first, because its constructor refuses an invalid option.
  os::ReadyFd ready_fd_;
  base::UniqueFd signals_;
  const os::Notifier notifier_;
  bool ready_ = false;
  bool stopping_ = false;
};

}  // namespace fo::loop
