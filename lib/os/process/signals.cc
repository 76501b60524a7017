#include "os/process/signals.h"

#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace fo::os {
namespace {

// Process-wide, because dispositions are.
struct Saved {
  bool present = false;
  sigset_t mask{};
  struct sigaction pipe {};
  struct sigaction child {};
};
Saved g_saved;

}  // namespace

sigset_t signal_set(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

void block_signals(const sigset_t& signals) {
  sigset_t before;
  if (const int err = ::pthread_sigmask(SIG_BLOCK, &signals, &before); err != 0) {
    base::throw_errno(err, "block signals");
  }
  if (g_saved.present) return;
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  if (::sigaction(SIGPIPE, &ignore, &g_saved.pipe) != 0) base::throw_errno(errno, "ignore SIGPIPE");
  // If SIGCHLD is ignored, children leave no status.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  if (::sigaction(SIGCHLD, &standard, &g_saved.child) != 0)
    base::throw_errno(errno, "reset SIGCHLD");
  g_saved.mask = before;
  g_saved.present = true;
}

sigset_t ending_signals() { return signal_set({SIGTERM, SIGINT, SIGHUP, SIGQUIT}); }

base::UniqueFd open_ending_signals() {
  const sigset_t ending = ending_signals();
  block_signals(ending);
  return open_signal_fd(ending);
}

void restore_signals() noexcept {
  if (!g_saved.present) return;
  ::sigaction(SIGPIPE, &g_saved.pipe, nullptr);
  ::sigaction(SIGCHLD, &g_saved.child, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &g_saved.mask, nullptr);
}

sigset_t terminating_signals() {
  sigset_t set = signal_set({SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM,
                             SIGPROF, SIGIO, SIGPWR, SIGSTKFLT, SIGXCPU});
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) sigaddset(&set, signal);
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    struct sigaction action {};
    if (sigismember(&set, signal) == 1 && ::sigaction(signal, nullptr, &action) == 0 &&
        action.sa_handler == SIG_IGN) {
      sigdelset(&set, signal);
    }
  }
  return set;
}

sigset_t forwardable_signals() {
  sigset_t set = terminating_signals();
  for (const int signal : {SIGCONT, SIGURG, SIGWINCH}) sigaddset(&set, signal);
  return set;
}

int die_of_signal(int signal) {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::signal(signal, SIG_DFL);
  const sigset_t set = signal_set({signal});
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(signal);
  return 128 + signal;
}

base::UniqueFd open_signal_fd(const sigset_t& signals) {
  base::UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) base::throw_errno(errno, "create a signalfd");
  return fd;
}

int read_signal(int signal_fd) {
  signalfd_siginfo info{};
  for (;;) {
    const ssize_t got = ::read(signal_fd, &info, sizeof info);
    if (got == static_cast<ssize_t>(sizeof info)) return static_cast<int>(info.ssi_signo);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return 0;
    base::throw_errno(got < 0 ? errno : EIO, "read a signal");
  }
}

}  // namespace fo::os
