#include "loop/daemon.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <vector>

#include "loop/spawn.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/service_manager.h"
#include "support/soon.h"
#include "support/temp_dir.h"

namespace fo::loop {
namespace {

using test::soon;

// Runs a daemon in its own process, whose signals it blocks.
class DaemonTest : public test::FdCounting {
 protected:
  DaemonTest() { test::forget_service_manager(); }
  ~DaemonTest() override { test::forget_service_manager(); }

  /// The exit status of `body`, which gets a daemon and a loop that runs it.
  int run(const std::function<void(Daemon&, boost::asio::io_context&, std::vector<Stop>&)>& body) {
    const os::Child child = os::fork_child(
        [&] {
          Daemon daemon;
          boost::asio::io_context loop(1);
          std::vector<Stop> stops;
          const auto on_stop = [&](Stop how) { stops.push_back(how); };
          loop::spawn(loop, daemon.run(on_stop), [](const std::exception_ptr& error) {
            if (error) std::rethrow_exception(error);
          });
          body(daemon, loop, stops);
          return testing::Test::HasFailure() ? 1 : 0;
        },
        {.parent_death_signal = SIGKILL});
    return child.wait(soon()).value_or(-1);
  }
  static void run_until(boost::asio::io_context& loop, const std::function<bool()>& done) {
    const base::Deadline deadline = soon();
    while (!done() && !deadline.expired()) loop.run_one_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(done());
  }

  test::TempDir dir_;
};

TEST_F(DaemonTest, TheFirstSignalOfFourStopsItGracefullyAndTheNextOnesNow) {
  for (const int first : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    const int status = run([&](Daemon& daemon, auto& loop, std::vector<Stop>& stops) {
      daemon.ready();
      EXPECT_TRUE(daemon.is_ready());
      EXPECT_FALSE(daemon.is_stopping());
      ::raise(first);
      run_until(loop, [&] { return !stops.empty(); });
      EXPECT_TRUE(daemon.is_stopping());
      EXPECT_FALSE(daemon.is_ready());
      ::raise(SIGTERM);
      run_until(loop, [&] { return stops.size() == 2; });
      ::raise(first);
      run_until(loop, [&] { return stops.size() == 3; });
      EXPECT_EQ(stops, (std::vector<Stop>{Stop::kGracefully, Stop::kNow, Stop::kNow}));
    });
    EXPECT_EQ(status, 0) << first;
  }
}

TEST_F(DaemonTest, SighupReloadsADaemonThatCan) {
  const os::Child child = os::fork_child(
      [&] {
        Daemon daemon;
        boost::asio::io_context loop(1);
        int reloads = 0;
        int stops = 0;
        loop::spawn(loop, daemon.run([&](Stop) { ++stops; }, [&] { ++reloads; }),
                    [](const std::exception_ptr& error) {
                      if (error) std::rethrow_exception(error);
                    });
        ::raise(SIGHUP);
        run_until(loop, [&] { return reloads == 1; });
        EXPECT_FALSE(daemon.is_stopping());
        ::raise(SIGTERM);
        run_until(loop, [&] { return stops == 1; });
        return testing::Test::HasFailure() ? 1 : 0;
      },
      {.parent_death_signal = SIGKILL});
  EXPECT_EQ(child.wait(soon()), 0);
}

TEST_F(DaemonTest, ASignalOnceItStopsForAnotherReasonMeansNow) {
  const int status = run([&](Daemon& daemon, auto& loop, std::vector<Stop>& stops) {
    daemon.begin_stop();
    ::raise(SIGTERM);
    run_until(loop, [&] { return !stops.empty(); });
    EXPECT_EQ(stops, std::vector<Stop>{Stop::kNow});
  });
  EXPECT_EQ(status, 0);
}

TEST_F(DaemonTest, TheServiceManagerIsNotifiedOfEachStepOnce) {
  const test::ServiceManager manager(dir_.path("notify"));
  ::setenv("NOTIFY_SOCKET", dir_.path("notify").c_str(), 1);
  const int status = run([&](Daemon& daemon, auto& loop, std::vector<Stop>& stops) {
    EXPECT_EQ(::getenv("NOTIFY_SOCKET"), nullptr);
    daemon.status("waiting");
    daemon.ready();
    ::raise(SIGTERM);
    ::raise(SIGHUP);
    run_until(loop, [&] { return stops.size() == 2; });
    daemon.begin_stop();
  });
  EXPECT_EQ(status, 0);
  for (const char* message : {"STATUS=waiting", "READY=1", "STOPPING=1", ""}) {
    EXPECT_EQ(manager.next(), message);
  }
}

TEST_F(DaemonTest, TheServiceManagerSeesThatTheLoopRuns) {
  const test::ServiceManager manager(dir_.path("notify"));
  ::setenv("NOTIFY_SOCKET", dir_.path("notify").c_str(), 1);
  ::setenv("WATCHDOG_USEC", "2000", 1);
  const int status = run([&](Daemon&, auto& loop, std::vector<Stop>&) {
    int beats = 0;
    run_until(loop, [&] {
      while (manager.next() == "WATCHDOG=1") ++beats;
      return beats > 3;
    });
  });
  EXPECT_EQ(status, 0);
}

TEST_F(DaemonTest, WritesToTheReadyDescriptorOnce) {
  os::Pipe pipe;
  const int status = os::fork_child([&] {
                       Daemon daemon(pipe.writer.release());
                       daemon.ready("127.0.0.1:1\n");
                       daemon.ready();
                       return 0;
                     })
                         .wait(soon())
                         .value_or(-1);
  EXPECT_EQ(status, 0);
  pipe.writer.reset();
  char text[32];
  EXPECT_EQ(::read(pipe.reader.get(), text, sizeof text), 12);
}

TEST_F(DaemonTest, ARefusedReadyDescriptorChangesNothing) {
  ::setenv("NOTIFY_SOCKET", "/nowhere", 1);
  EXPECT_EQ(test::status_of([] { const Daemon daemon(1023); }), base::ExitStatus::kUsage);
  EXPECT_NE(::getenv("NOTIFY_SOCKET"), nullptr);
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGQUIT), 0);
}

}  // namespace
}  // namespace fo::loop
