#include "os/process/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>

#include "os/process/signals.h"
#include "support.h"
#include "support/fds.h"
#include "support/must_run.h"
#include "support/sanitizers.h"
#include "support/temp_dir.h"

namespace fo::os::test {
namespace {

using base::Deadline;
using base::ExitStatus;

class Process : public fo::test::FdCounting {};

TEST_F(Process, ExitStatusesAreWhatAShellReports) {
  EXPECT_EQ(spawn({"true"}).wait(soon()), 0);
  EXPECT_EQ(spawn({"sh", "-c", "exit 255"}).wait(soon()), 255);
  EXPECT_EQ(spawn({"sh", "-c", "kill -TERM $$"}).wait(soon()), 128 + SIGTERM);
  EXPECT_EQ(spawn({"sh", "-c", "kill -KILL $$"}).wait(soon()), 128 + SIGKILL);
}

TEST_F(Process, ADumpedCoreDoesNotShowInTheStatus) {
  const Child child = fork_child([]() -> int {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::signal(SIGABRT, SIG_DFL);
    ::raise(SIGABRT);
    return 0;
  });
  EXPECT_EQ(child.wait(soon()), 128 + SIGABRT);
}

TEST_F(Process, AMissingProgramIs127AndNoChildIsLeft) {
  const Failure failure = failure_of([] { spawn({"no-such-program-anywhere"}); });
  EXPECT_EQ(failure.status, ExitStatus::kNotFound);
  EXPECT_EQ(failure.message, "run 'no-such-program-anywhere': No such file or directory");
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(Process, AProgramThatCannotRunIs126) {
  const fo::test::TempDir folder;
  EXPECT_EQ(failure_of([&] { spawn({folder.path()}); }).status, ExitStatus::kCannotRun);
}

TEST_F(Process, WaitGivesUpAtTheDeadline) {
  const Pipe pipe;
  const Child child = spawn({"cat"}, {.stdin_fd = pipe.reader.get()});
  EXPECT_EQ(child.wait(Deadline::after(base::Duration::zero())), std::nullopt);
  EXPECT_TRUE(child.signal(SIGKILL));
  EXPECT_EQ(child.wait(soon()), 128 + SIGKILL);
  EXPECT_FALSE(child.signal(SIGKILL));
}

TEST_F(Process, ThePidfdIsReadableOnceTheChildHasEnded) {
  const Child child = spawn({"true"});
  pollfd ready{child.pidfd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, soon().poll_timeout()), 1);
  EXPECT_EQ(child.wait(Deadline::after(base::Duration::zero())), 0);
}

TEST_F(Process, StandardStreamsAndEnvironmentAreGiven) {
  Pipe in;
  Pipe out;
  const SpawnOptions options{
      .stdin_fd = in.reader.get(),
      .stdout_fd = out.writer.get(),
      .stderr_fd = out.writer.get(),
      .environment = {{"FO_A", "1=2"}, {"PATH", "/bin:/usr/bin"}, {"FO_B", ""}}};
  const Child child =
      spawn({"sh", "-c", "read line; echo \"$line $FO_A $PATH${FO_B-unset}\" >&2"}, options);
  out.writer.reset();
  ASSERT_EQ(::write(in.writer.get(), "hello\n", 6), 6);
  EXPECT_EQ(read_to_end(out.reader.get()), "hello 1=2 /bin:/usr/bin\n");
  EXPECT_EQ(child.wait(soon()), 0);
}

TEST_F(Process, OnlyKeptDescriptorsAreInherited) {
  const Pipe kept;
  const Pipe closed;
  Pipe out;
  const SpawnOptions options{.keep_fds = {kept.writer.get()}, .stdout_fd = out.writer.get()};
  const Child child =
      spawn({"sh", "-c", "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done"}, options);
  out.writer.reset();
  const std::string text = "\n" + read_to_end(out.reader.get());
  EXPECT_NE(text.find("\n" + std::to_string(kept.writer.get()) + "\n"), std::string::npos);
  EXPECT_EQ(text.find("\n" + std::to_string(closed.writer.get()) + "\n"), std::string::npos);
  EXPECT_EQ(child.wait(soon()), 0);
}

TEST_F(Process, AnUnopenDescriptorToKeepIsAnError) {
  const SpawnOptions options{.keep_fds = {1 << 20}};
  EXPECT_EQ(failure_of([&] { spawn({"true"}, options); }).status, ExitStatus::kCannotRun);
}

TEST_F(Process, ANewProcessGroupIsTheChilds) {
  const Child child = spawn({"sleep", "1000"}, {.new_process_group = true});
  EXPECT_EQ(::getpgid(child.pid()), child.pid());
  child.signal(SIGKILL);
  EXPECT_EQ(child.wait(soon()), 128 + SIGKILL);
}

TEST_F(Process, TheParentsDeathIsTheChilds) {
  Pipe alive;
  const Child parent = fork_child([&] {
    const SpawnOptions options{.parent_death_signal = SIGKILL, .stdout_fd = alive.writer.get()};
    const Child child = spawn({"sleep", "1000"}, options);
    return 0;
  });
  alive.writer.reset();
  EXPECT_EQ(parent.wait(soon()), 0);
  // The pipe ends with the last process that holds its other end.
  pollfd ended{alive.reader.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, soon().poll_timeout()), 1);
  EXPECT_EQ(read_to_end(alive.reader.get()), "");
}

TEST_F(Process, AForkedChildsExceptionIsItsStatus) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(fork_child([]() -> int {
              throw base::Error(ExitStatus::kConfig, "read 'x': bad");
            }).wait(soon()),
            78);
  EXPECT_EQ(fork_child([]() -> int { throw std::runtime_error("oops"); }).wait(soon()), 70);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "fo: error: read 'x': bad\nfo: error: oops\n");
}

TEST_F(Process, AFullDescriptorTableLeavesNoChildBehind) {
  if (fo::test::kHasSanitizers) FO_SKIP("release", fo::test::kSanitizersOpenPipes);
  EXPECT_EQ(fork_child([] {
              const base::UniqueFd lowest(::dup(STDIN_FILENO));
              // Enough descriptors for spawn's pipe, but not for the pidfd.
              const auto limit = static_cast<rlim_t>(lowest.get() + 3);
              const rlimit tight{limit, limit};
              if (::setrlimit(RLIMIT_NOFILE, &tight) != 0) return 1;
              try {
                spawn({"sleep", "1000"});
                return 2;
              } catch (const base::Error&) {
              }
              return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD ? 0 : 3;
            }).wait(soon()),
            0);
}

TEST_F(Process, ASubreaperGetsItsOrphans) {
  EXPECT_EQ(fork_child([] {
              become_subreaper();
              // The shell ends at once; its background process is reparented to this one.
              if (spawn({"sh", "-c", "sh -c 'exit 7' &"}).wait(soon()) != 0) return 1;
              int status = 0;
              while (::waitpid(-1, &status, 0) < 0) {
                if (errno != EINTR) return 2;
              }
              return WEXITSTATUS(status);
            }).wait(soon()),
            7);
}

TEST_F(Process, PidfdsOfTheDeadAreNone) {
  const Child child = spawn({"true"});
  ASSERT_EQ(child.wait(soon()), 0);
  EXPECT_FALSE(open_pidfd(child.pid()).has_value());
  EXPECT_TRUE(open_pidfd(::getpid()).has_value());
}

TEST_F(Process, StartTimesTellProcessesApart) {
  const auto own = process_start_time(::getpid());
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(own, process_start_time(::getpid()));
  EXPECT_GE(own, process_start_time(::getppid()));
  EXPECT_EQ(process_start_time(0), std::nullopt);
}

TEST_F(Process, AHostileProcessNameDoesNotMisleadUs) {
  Pipe ready;
  Pipe hold;
  const auto want_parent = ::getpid();
  const Child child = fork_child([&] {
    const base::UniqueFd name(::open("/proc/self/comm", O_WRONLY | O_CLOEXEC));
    if (::write(name.get(), ") S 1 1 ) 9 9", 13) != 13) return 1;
    ready.writer.reset();
    hold.writer.reset();
    read_to_end(hold.reader.get());
    return 0;
  });
  ready.writer.reset();
  read_to_end(ready.reader.get());
  EXPECT_EQ(process_parent(child.pid()), want_parent);
  EXPECT_GE(process_start_time(child.pid()), process_start_time(::getpid()));
  hold.writer.reset();
  EXPECT_EQ(child.wait(soon()), 0);
}

TEST_F(Process, TheFdLimitIsRaisedToTheHardOne) {
  EXPECT_EQ(fork_child([] {
              rlimit limit{};
              ::getrlimit(RLIMIT_NOFILE, &limit);
              const rlimit low{64, limit.rlim_max};
              ::setrlimit(RLIMIT_NOFILE, &low);
              if (raise_fd_limit() != limit.rlim_max) return 1;
              ::getrlimit(RLIMIT_NOFILE, &limit);
              return limit.rlim_cur == limit.rlim_max ? 0 : 2;
            }).wait(soon()),
            0);
}

}  // namespace
}  // namespace fo::os::test
