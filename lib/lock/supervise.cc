#include "lock/supervise.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <optional>

#include "base/error.h"
#include "os/log.h"
#include "os/pause.h"
#include "os/process/process.h"
#include "os/process/process_tree.h"
#include "os/process/signals.h"
#include "os/terminal.h"

namespace fo::lock {
namespace {

using base::Deadline;

class Supervisor {
 public:
  Supervisor(FailoverLock& lock, const SuperviseOptions& options, StatusEvents& events)
      : lock_(lock), grace_(options.grace), events_(events) {
    sigset_t signals = os::forwardable_signals();
    sigaddset(&signals, SIGCHLD);
    os::block_signals(signals);
    os::block_signals(os::signal_set({SIGTTOU}));
    signal_fd_ = os::open_signal_fd(signals);
    os::become_subreaper();
    check_lock();
    if (loss_) return;
    os::SpawnOptions spawn;
    spawn.new_process_group = true;
    spawn.parent_death_signal = SIGKILL;
    spawn.keep_fds = lock.fds();
    spawn.environment = options.environment;
    child_.emplace(os::spawn(options.command, spawn));
    terminal_.emplace(child_->pid());
    events_.child_started(child_->pid());
  }

  int run() {
    try {
      while (!reap()) {
        check_lock();
        if (grace_end_.expired()) {
          os::signal_left(SIGKILL);
          grace_end_ = Deadline::after(os::kAgainAfter);
        }
        wait();
      }
    } catch (...) {
      // Whatever the error, no process of ours continues without a lock.
      while (!reap()) {
        os::signal_left(SIGKILL);
        os::pause_for(os::kAgainAfter);
      }
      throw;
    }
    if (!loss_) return status_;
    // Last, because writing a log line may be slow.
    os::log(os::LogLevel::kError, "hold lock {}: {}", base::quoted(lock_.path()), loss_->reason);
    return base::to_int(loss_->status);
  }

 private:
  // True if no child is left.
  bool reap() {
    for (;;) {
      const os::Reaped reaped = os::reap_any();
      if (reaped.none_left) return true;
      if (reaped.pid == 0) break;
      if (!child_ || reaped.pid != child_->pid()) continue;
      status_ = reaped.status;
      child_.reset();
      events_.child_ended(status_);
    }
    // The descendants are searched only after the command's end, because the search takes longer
    // than most commands need to end with all their processes.
    if (!child_) end_all();
    return false;
  }

  void check_lock() {
    const std::optional<Loss> loss = lock_.check();
    if (!loss) return;
    // Another process may be active already, or soon, so this comes first.
    if (loss->end_by.expired()) os::signal_left(SIGKILL);
    end_all();
    grace_end_ = grace_end_.sooner(loss->end_by);
    const bool is_worse =
        loss_ && loss_->overlap == base::Duration::zero() && loss->overlap > base::Duration::zero();
    if (loss_ && !is_worse) return;
    loss_ = loss;
    events_.lost(*loss_);
  }

  void end_all() {
    if (!grace_end_.is_never()) return;
    grace_end_ = Deadline::after(grace_);
    os::signal_descendants(SIGTERM);
  }

  void wait() {
    const FailoverLock::Watch watch = lock_.watch();
    std::array<pollfd, 2> ready{{{signal_fd_.get(), POLLIN, 0}, {watch.fd, watch.events, 0}}};
    const Deadline next = watch.at.sooner(grace_end_);
    if (::poll(ready.data(), ready.size(), next.poll_timeout()) < 0 && errno != EINTR) {
      base::throw_errno(errno, "wait for the command");
    }
    while (const int signal = os::read_signal(signal_fd_.get())) {
      if (!child_) continue;
      if (signal == SIGCHLD) {
        terminal_->follow_stop();
      } else {
        forward(signal);
      }
    }
  }

  void forward(int signal) const {
    try {
      child_->signal(signal);
    } catch (const base::Error& error) {
      os::log(os::LogLevel::kWarning, "forward to process {}: {}", child_->pid(), error.what());
    }
  }

  FailoverLock& lock_;
  base::Duration grace_;
  StatusEvents& events_;
  base::UniqueFd signal_fd_;
  std::optional<os::Child> child_;
  std::optional<os::TerminalLoan> terminal_;
  int status_ = 0;
  std::optional<Loss> loss_;
  // The time of SIGKILL; never if no process must end.
  Deadline grace_end_ = Deadline::never();
};

}  // namespace

int supervise(FailoverLock& lock, const SuperviseOptions& options, StatusEvents& events) {
  return Supervisor(lock, options, events).run();
}

}  // namespace fo::lock
