#include "os/process/process_tree.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "support/forked.h"

namespace fo::os {
namespace {

using fo::test::Forked;

// Runs `body` in a subreaper whose child has left a grandchild, in another session and ignoring
// SIGTERM.
int with_orphan(const std::function<int(pid_t orphan)>& body) {
  become_subreaper();
  int ends[2];
  if (::pipe(ends) != 0) return 99;
  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t orphan = ::fork();
    if (orphan == 0) {
      ::setsid();
      ::signal(SIGTERM, SIG_IGN);
      const pid_t self = ::getpid();
      if (::write(ends[1], &self, sizeof self) != sizeof self) ::_exit(1);
      for (;;) ::pause();
    }
    ::_exit(7);
  }
  pid_t orphan = 0;
  if (::read(ends[0], &orphan, sizeof orphan) != sizeof orphan) return 99;
  return body(orphan);
}

Reaped reap_until_dead() {
  for (;;) {
    const Reaped reaped = reap_any();
    if (reaped.pid != 0 || reaped.none_left) return reaped;
    siginfo_t ended{};
    ::waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT);
  }
}

TEST(ProcessTree, FindsAndKillsAnOrphan) {
  Forked tree([](int) {
    return with_orphan([](pid_t orphan) {
      const Reaped child = reap_until_dead();
      if (child.status != 7) return 1;
      if (descendants() != std::vector<pid_t>{orphan}) return 2;
      if (reap_any().pid != 0 || reap_any().none_left) return 3;
      signal_descendants(SIGTERM);
      signal_descendants(SIGKILL);
      const Reaped reaped = reap_until_dead();
      if (reaped.pid != orphan || reaped.status != 128 + SIGKILL) return 4;
      return reap_any().none_left && descendants().empty() ? 0 : 5;
    });
  });
  EXPECT_EQ(tree.wait(), 0);
}

TEST(ProcessTree, HasGrandchildren) {
  Forked tree([](int) {
    int ends[2];
    if (::pipe(ends) != 0) return 99;
    const pid_t child = ::fork();
    if (child == 0) {
      if (::fork() == 0 && ::write(ends[1], "", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char ready = 0;
    if (::read(ends[0], &ready, 1) != 1) return 99;
    const std::vector<pid_t> found = descendants();
    signal_descendants(SIGKILL);
    return found.size() == 2 && found.front() == child ? 0 : 1;
  });
  EXPECT_EQ(tree.wait(), 0);
}

TEST(ProcessTree, ThreeDescriptorsAreEnoughToKillMany) {
  for (const rlim_t left : {3U, 16U, 17U, 18U}) {
    Forked tree([left](int) {
      for (int count = 0; count < 20; ++count) {
        static_cast<void>(fork_child(fo::test::pause_for_ever, {.parent_death_signal = SIGKILL}));
      }
      // Its number and all lower ones are in use.
      const rlim_t limit = static_cast<rlim_t>(::dup(0)) + 1 + left;
      const rlimit few{limit, limit};
      if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 99;
      const base::Deadline deadline = base::Deadline::after(fo::test::kLong);
      while (!reap_any().none_left) {
        if (deadline.expired()) return 1;
        signal_descendants(SIGKILL);
      }
      return 0;
    });
    ASSERT_EQ(tree.wait(), 0) << left;
  }
}

}  // namespace
}  // namespace fo::os
