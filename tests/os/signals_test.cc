#include "os/process/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "os/process/process.h"
#include "support.h"
#include "support/fds.h"

namespace fo::os::test {
namespace {

/// The state saved for restore_signals belongs to the process, so each test runs in a child.
int in_child(const std::function<int()>& body) { return *fork_child(body).wait(soon()); }

bool is_blocked(int signal) {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

using Signals = fo::test::FdCounting;

TEST_F(Signals, AreReadInsteadOfDelivered) {
  EXPECT_EQ(in_child([] {
              block_signals(signal_set({SIGTERM, SIGUSR1}));
              const base::UniqueFd fd = open_signal_fd(signal_set({SIGTERM, SIGUSR1}));
              if (read_signal(fd.get()) != 0) return 1;
              ::raise(SIGUSR1);
              ::raise(SIGTERM);
              if (read_signal(fd.get()) != SIGUSR1) return 2;
              if (read_signal(fd.get()) != SIGTERM) return 3;
              return read_signal(fd.get());
            }),
            0);
}

TEST_F(Signals, RestoreGivesBackWhatTheFirstBlockFound) {
  EXPECT_EQ(in_child([] {
              const sigset_t before = signal_set({SIGUSR2});
              ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
              block_signals(signal_set({SIGTERM}));
              block_signals(signal_set({SIGINT}));
              if (!is_blocked(SIGTERM) || !is_blocked(SIGINT)) return 1;
              restore_signals();
              if (is_blocked(SIGTERM) || is_blocked(SIGINT) || !is_blocked(SIGUSR2)) return 2;
              struct sigaction pipe {};
              ::sigaction(SIGPIPE, nullptr, &pipe);
              return pipe.sa_handler == SIG_DFL ? 0 : 3;
            }),
            0);
}

TEST_F(Signals, RestoreWithoutBlockDoesNothing) {
  EXPECT_EQ(in_child([] {
              ::signal(SIGPIPE, SIG_IGN);
              restore_signals();
              struct sigaction pipe {};
              ::sigaction(SIGPIPE, nullptr, &pipe);
              return pipe.sa_handler == SIG_IGN ? 0 : 1;
            }),
            0);
}

TEST_F(Signals, SigpipeIsIgnoredWhileWeRun) {
  EXPECT_EQ(in_child([] {
              block_signals(signal_set({}));
              Pipe pipe;
              pipe.reader.reset();
              return ::write(pipe.writer.get(), "x", 1) < 0 && errno == EPIPE ? 0 : 1;
            }),
            0);
}

TEST_F(Signals, DyingOfASignalIsSeenAsThat) {
  EXPECT_EQ(in_child([] {
              block_signals(signal_set({SIGTERM}));
              return die_of_signal(SIGTERM);
            }),
            128 + SIGTERM);
}

TEST_F(Signals, IgnoredOnesAreNotTerminating) {
  EXPECT_EQ(in_child([] {
              ::signal(SIGHUP, SIG_IGN);
              const sigset_t set = terminating_signals();
              return sigismember(&set, SIGHUP) == 0 && sigismember(&set, SIGTERM) == 1 &&
                             sigismember(&set, SIGKILL) == 0
                         ? 0
                         : 1;
            }),
            0);
}

}  // namespace
}  // namespace fo::os::test
