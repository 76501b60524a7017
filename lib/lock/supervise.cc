#include "lock/supervise.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <optional>

#include "base/error.h"
#include "lock/path_watch.h"
#include "os/log.h"
#include "os/process.h"
#include "os/process_tree.h"
#include "os/signals.h"

namespace fo::lock {
namespace {

using base::Deadline;

// While processes that were sent KILL go away, new ones may still appear.
constexpr base::Duration kKillAgainAfter = std::chrono::milliseconds(20);

class Supervisor {
 public:
  Supervisor(const FailoverLock& lock, const SuperviseOptions& options, StatusEvents& events)
      : lock_(lock), grace_(options.grace), events_(events), watch_(lock.path()) {
    sigset_t signals = os::forwardable_signals();
    sigaddset(&signals, SIGCHLD);
    os::block_signals(signals);
    signal_fd_ = os::open_signal_fd(signals);
    os::become_subreaper();
    os::SpawnOptions spawn;
    spawn.new_process_group = true;
    spawn.parent_death_signal = SIGKILL;
    spawn.keep_fds = {lock.fd()};
    spawn.environment = options.environment;
    child_.emplace(os::spawn(options.command, spawn));
    events_.child_started(child_->pid());
  }

  int run() {
    while (!reap()) {
      check_lock();
      if (grace_end_.expired()) {
        os::signal_descendants(SIGKILL);
        grace_end_ = Deadline::after(kKillAgainAfter);
      }
      wait();
    }
    return lost_ ? base::to_int(base::ExitStatus::kProtocol) : status_;
  }

 private:
  // True when no child is left.
  bool reap() {
    for (;;) {
      const os::Reaped reaped = os::reap_any();
      if (reaped.none_left) return true;
      if (reaped.pid == 0) return false;
      if (!child_ || reaped.pid != child_->pid()) continue;
      status_ = reaped.status;
      child_.reset();
      events_.child_ended(status_);
      end_all();
    }
  }

  void check_lock() {
    if (lost_ || !lock_.is_replaced()) return;
    lost_ = true;
    os::log(os::LogLevel::kError, "hold lock {}: the file was replaced",
            base::quoted(lock_.path()));
    events_.lost("the lock file was replaced");
    end_all();
  }

  void end_all() {
    if (!grace_end_.is_never()) return;
    os::signal_descendants(SIGTERM);
    grace_end_ = Deadline::after(grace_);
  }

  void wait() {
    std::array<pollfd, 2> ready{{{signal_fd_.get(), POLLIN, 0}, {watch_.fd(), POLLIN, 0}}};
    const Deadline next = Deadline::after(kPathCheckInterval).sooner(grace_end_);
    if (::poll(ready.data(), ready.size(), next.poll_timeout()) < 0 && errno != EINTR) {
      base::throw_errno(errno, "wait for the command");
    }
    watch_.drain();
    while (const int signal = os::read_signal(signal_fd_.get())) {
      if (signal != SIGCHLD && child_) child_->signal(signal);
    }
  }

  const FailoverLock& lock_;
  base::Duration grace_;
  StatusEvents& events_;
  PathWatch watch_;
  base::UniqueFd signal_fd_;
  std::optional<os::Child> child_;
  int status_ = 0;
  bool lost_ = false;
  // When KILL comes; never while nothing has to go.
  Deadline grace_end_ = Deadline::never();
};

}  // namespace

int supervise(const FailoverLock& lock, const SuperviseOptions& options, StatusEvents& events) {
  return Supervisor(lock, options, events).run();
}

}  // namespace fo::lock
