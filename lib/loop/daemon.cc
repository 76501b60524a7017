#include "loop/daemon.h"

#include <poll.h>

#include <csignal>
#include <optional>
#include <utility>

#include "base/deadline.h"
#include "loop/event.h"
#include "os/log.h"
#include "os/process/signals.h"

namespace fo::loop {

using base::Deadline;

Daemon::Daemon(int ready_fd) : ready_fd_(ready_fd), signals_(os::open_ending_signals()) {}

Daemon Daemon::for_children() {
  os::block_signals(os::signal_set({SIGCHLD}));
  return Daemon();
}

boost::asio::awaitable<void> Daemon::run(std::function<void(Stop)> on_stop,
                                         std::function<void()> on_reload) {
  const std::optional<base::Duration> interval = notifier_.watchdog_interval();
  Deadline alive_at = interval ? Deadline::after(base::Duration::zero()) : Deadline::never();
  for (;;) {
    if (alive_at.expired()) {
      notifier_.alive();
      alive_at = Deadline::after(*interval);
    }
    while (const int signal = os::read_signal(signals_.get())) {
      if (signal == SIGHUP && on_reload) {
        on_reload();
        continue;
      }
      os::log(os::LogLevel::kDebug, "signal {}: ending", signal);
      const Stop how = stopping_ ? Stop::kNow : Stop::kGracefully;
      begin_stop();
      on_stop(how);
    }
    co_await until_ready(signals_.get(), POLLIN, alive_at);
  }
}

void Daemon::ready(std::string_view line) {
  ready_fd_.announce(line);
  notifier_.ready();
  ready_ = true;
}

void Daemon::begin_stop() {
  if (!std::exchange(stopping_, true)) notifier_.stopping();
}

}  // namespace fo::loop
