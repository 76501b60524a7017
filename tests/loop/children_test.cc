#include "loop/children.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <csignal>
#include <fstream>
#include <map>
#include <optional>

#include "base/units.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "os/file/file.h"
#include "os/file/pipe.h"
#include "os/process/process_tree.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/temp_dir.h"

namespace fo::loop {
namespace {

using base::Deadline;
using base::ExitStatus;
using os::Captured;
using test::failure_of;
using test::in_ms;
using test::soon;
using test::TempDir;
using test::TestLoop;
using Words = std::vector<std::string>;

Words shell(const std::string& script) { return {"sh", "-c", script}; }

bool none_left() { return os::descendants().empty(); }

class ChildrenTest : public fo::test::FdCounting {
 protected:
  ~ChildrenTest() override { loop_.run(children_.end_all(Deadline::after(base::Duration(0)))); }

  /// Its status is in statuses_ after its end.
  pid_t start(const Words& argv, const os::SpawnOptions& options = {}) {
    const auto pid = std::make_shared<pid_t>(0);
    *pid = children_.start(argv, options,
                           [this, pid](os::WaitStatus status) { statuses_[*pid] = status; });
    return *pid;
  }
  os::WaitStatus status_of(pid_t pid) {
    loop_.run_until([&] { return statuses_.contains(pid); });
    return statuses_[pid];
  }
  /// Starts a script and waits until it creates the file "ready".
  pid_t start_ready(const std::string& script) {
    const std::string file = dir_.path("ready" + std::to_string(++count_));
    const pid_t pid = start(shell("ready() { : >" + file + "; }; " + script));
    loop_.run_until([&] { return ::access(file.c_str(), F_OK) == 0; });
    return pid;
  }
  std::optional<Captured> run(const Words& argv, const Deadline& deadline = soon()) {
    return loop_.run(children_.run_captured(argv, deadline));
  }
  void end_all(const Deadline& kill_at) { loop_.run(children_.end_all(kill_at)); }

  TempDir dir_;
  TestLoop loop_;
  Children children_{loop_.io()};
  std::map<pid_t, os::WaitStatus> statuses_;
  int count_ = 0;
};

TEST_F(ChildrenTest, TellsHowAChildEnded) {
  const pid_t exits = start(shell("exit 3"));
  const pid_t dies = start(shell("kill -KILL $$"));
  EXPECT_EQ(status_of(exits), 3);
  EXPECT_EQ(status_of(dies), 137);
}

TEST_F(ChildrenTest, ManyEndsAtOnceAreAllTold) {
  std::vector<pid_t> pids;
  for (int count = 0; count < 50; ++count) pids.push_back(start(shell("exit 1")));
  for (const pid_t pid : pids) EXPECT_EQ(status_of(pid), 1);
}

TEST_F(ChildrenTest, ProgramThatCannotBeRunIsAnError) {
  EXPECT_EQ(failure_of([&] { start({"/nonexistent/program"}); }).status, ExitStatus::kNotFound);
  std::ofstream(dir_.path("text")) << "no program";
  EXPECT_EQ(failure_of([&] { start({dir_.path("text")}); }).status, ExitStatus::kCannotRun);
}

TEST_F(ChildrenTest, SignalsAChildUntilItIsReaped) {
  const pid_t pid = start({"sleep", "1000"});
  EXPECT_TRUE(children_.signal(pid, SIGUSR1));
  EXPECT_EQ(status_of(pid), 128 + SIGUSR1);
  EXPECT_FALSE(children_.signal(pid, SIGUSR1));
  EXPECT_FALSE(children_.signal(::getpid(), 0));
}

TEST_F(ChildrenTest, OrphansAreReapedWithoutAWord) {
  const auto done = run(shell("sleep 1000 & echo $!"));
  ASSERT_TRUE(done);
  const auto orphan = base::parse_uint(done->out.substr(0, done->out.find('\n')));
  ASSERT_TRUE(orphan) << done->out;
  ASSERT_EQ(os::descendants(), std::vector{static_cast<pid_t>(*orphan)});
  ::kill(static_cast<pid_t>(*orphan), SIGKILL);
  loop_.run_until(none_left);
}

TEST_F(ChildrenTest, ACallbackMayStartTheNext) {
  pid_t second = 0;
  children_.start(shell("exit 0"), {}, [&](os::WaitStatus) { second = start(shell("exit 4")); });
  loop_.run_until([&] { return second != 0; });
  EXPECT_EQ(status_of(second), 4);
}

TEST(Children, DieWithTheProcessThatStartedThem) {
  const os::Pipe pipe;
  const os::Child parent = os::fork_child([&] {
    TestLoop loop;
    Children children(loop.io());
    const pid_t pid = children.start({"sleep", "1000"}, {.parent_death_signal = 0}, {});
    if (::write(pipe.writer.get(), &pid, sizeof pid) != sizeof pid) return 1;
    for (;;) ::pause();
  });
  pid_t pid = 0;
  ASSERT_EQ(::read(pipe.reader.get(), &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  const auto child = os::open_pidfd(pid);
  ASSERT_TRUE(child);
  parent.signal(SIGKILL);
  pollfd dead{child->get(), POLLIN, 0};
  EXPECT_EQ(::poll(&dead, 1, soon().poll_timeout()), 1);
  os::send_signal(child->get(), SIGKILL);
  EXPECT_EQ(parent.wait(soon()), 128 + SIGKILL);
}

TEST_F(ChildrenTest, CapturesOutputsAndStatusApart) {
  const auto done = run(shell("cat; echo out; echo err >&2; exit 3"));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, 3);
  EXPECT_EQ(done->out, "out\n");
  EXPECT_EQ(done->err, "err\n");
}

TEST_F(ChildrenTest, CapturesWithTheEnvironmentThatIsGiven) {
  const Words script = shell("echo $FO_TEST_WORD");
  std::vector<std::pair<std::string, std::string>> environment{{"FO_TEST_WORD", "given"}};
  const auto done = loop_.run(children_.run_captured(script, soon(), environment));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->out, "given\n");
}

TEST_F(ChildrenTest, CapturesTheStartOfALongOutputAndReadsItAll) {
  const auto done = run(shell("head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; exit 5"));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, 5);
  EXPECT_EQ(done->out.size(), 64u * 1024);
  EXPECT_EQ(done->err.size(), 64u * 1024);
}

TEST_F(ChildrenTest, CapturesWithoutWaitingForWhatWasStarted) {
  const auto done = run(shell("yes & exec echo done >&2"));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, 0);
  EXPECT_EQ(done->err, "done\n");
  EXPECT_FALSE(none_left());
}

TEST_F(ChildrenTest, CapturesTheStatusOfAProgramThatClosedItsOutputs) {
  const auto done = run(shell("exec >&- 2>&-; sh -c 'exit 6'"));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, 6);
}

TEST_F(ChildrenTest, CaptureKillsAllThatIsNotDoneInTime) {
  EXPECT_EQ(run(shell("trap '' TERM; sleep 1000 & sleep 1000"), in_ms(200)), std::nullopt);
  loop_.run_until(none_left);
  EXPECT_EQ(run(shell("exec sleep 1000 >&- 2>&-"), in_ms(50)), std::nullopt);
  loop_.run_until(none_left);
  EXPECT_EQ(run({"sleep", "1000"}, in_ms(0)), std::nullopt);
  loop_.run_until(none_left);
}

TEST_F(ChildrenTest, CaptureOfAProgramThatCannotBeRunIsAnError) {
  const auto failure = failure_of([&] { run({"/nonexistent/program"}); });
  EXPECT_EQ(failure.status, ExitStatus::kNotFound);
  EXPECT_EQ(failure.message, "run '/nonexistent/program': No such file or directory");
}

TEST_F(ChildrenTest, CapturesSideBySide) {
  std::optional<Captured> first;
  std::optional<Captured> second;
  const std::string fifo = dir_.path("fifo");
  ASSERT_EQ(run({"mkfifo", fifo})->status, 0);
  boost::asio::co_spawn(loop_.io(),
                        children_.run_captured(shell("read word <" + fifo + "; exit 7"), soon()),
                        [&](std::exception_ptr, std::optional<Captured> got) { first = got; });
  boost::asio::co_spawn(loop_.io(),
                        children_.run_captured(shell("echo word >" + fifo + "; exit 8"), soon()),
                        [&](std::exception_ptr, std::optional<Captured> got) { second = got; });
  loop_.run_until([&] { return first && second; });
  EXPECT_EQ(first->status, 7);
  EXPECT_EQ(second->status, 8);
}

TEST(Children, AnAbandonedCaptureIsKilled) {
  {
    TestLoop loop;
    Children children(loop.io());
    const Words endless = shell("sleep 1000 & wait");
    loop::spawn(loop.io(), loop::without_result(children.run_captured(endless, Deadline::never())));
    loop.run_until([] { return os::descendants().size() == 2; });
  }
  TestLoop loop;
  Children children(loop.io());
  loop.run_until(none_left);
  loop.run(children.end_all(in_ms(0)));
}

TEST_F(ChildrenTest, EndAllOfNobodyIsDone) { end_all(soon()); }

TEST_F(ChildrenTest, EndAllTerminatesAndTellsBeforeItReturns) {
  const pid_t polite = start_ready("trap 'exit 9' TERM; ready; while :; do sleep 0.01; done");
  const pid_t plain = start_ready("ready; exec sleep 1000");
  end_all(soon());
  EXPECT_TRUE(none_left());
  EXPECT_EQ(statuses_[polite], 9);
  EXPECT_EQ(statuses_[plain], 128 + SIGTERM);
}

TEST_F(ChildrenTest, EndAllWaitsForAllThatItsChildrenLeft) {
  const pid_t child = start_ready("(trap '' TERM; ready; exec sleep 1000) & exit 0");
  EXPECT_EQ(status_of(child), 0);
  ASSERT_FALSE(none_left());
  end_all(in_ms(50));
  EXPECT_TRUE(none_left());
}

TEST_F(ChildrenTest, EndAllKillsWhatIgnoresTheRequest) {
  const pid_t stubborn = start_ready("trap '' TERM; ready; while :; do sleep 0.01; done");
  end_all(in_ms(50));
  EXPECT_TRUE(none_left());
  EXPECT_EQ(statuses_[stubborn], 128 + SIGKILL);
}

TEST_F(ChildrenTest, EndAllWithoutGraceKillsAtOnce) {
  const pid_t stubborn = start_ready("trap '' TERM; ready; while :; do sleep 0.01; done");
  end_all(in_ms(0));
  EXPECT_TRUE(none_left());
  EXPECT_EQ(statuses_[stubborn], 128 + SIGKILL);
}

TEST_F(ChildrenTest, EndAllEndsTheStopped) {
  const pid_t stopped = start({"sleep", "1000"});
  children_.signal(stopped, SIGSTOP);
  loop_.run_until([&] {
    return os::read_file("/proc/" + std::to_string(stopped) + "/stat", 4096).find(") T ") !=
           std::string::npos;
  });
  end_all(in_ms(50));
  EXPECT_TRUE(none_left());
  EXPECT_EQ(statuses_[stopped], 128 + SIGKILL);
}

TEST_F(ChildrenTest, EndAllFindsThoseThatLeftTheirSession) {
  start_ready("setsid sh -c \"trap '' TERM; : >" + dir_.path("ready1") +
              "; exec sleep 1000\" & wait");
  end_all(in_ms(50));
  EXPECT_TRUE(none_left());
}

TEST_F(ChildrenTest, EndAllOutlivesAForkingTree) {
  start_ready(
      "trap '' TERM; ready; count=0; while [ $count -lt 300 ]; do"
      " (trap '' TERM; sh -c 'sleep 1000 & sleep 1000' & sleep 1000) & count=$((count + 1)); done;"
      " wait");
  end_all(in_ms(20));
  EXPECT_TRUE(none_left());
}

}  // namespace
}  // namespace fo::loop
