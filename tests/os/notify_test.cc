#include "os/socket/notify.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <fstream>
#include <future>
#include <iterator>
#include <thread>

#include "os/process/process.h"
#include "os/process/sibling.h"
#include "support/environment.h"
#include "support/fds.h"
#include "support/service_manager.h"
#include "support/temp_dir.h"

namespace fo::os {
namespace {

using namespace std::chrono_literals;
using Manager = fo::test::ServiceManager;

class Notify : public fo::test::FdCounting {
 protected:
  void set(const char* name, const std::string& value) { environment_.set(name, value); }

  fo::test::Environment environment_{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};
  fo::test::TempDir dir_;
};

TEST_F(Notify, TellsTheManagerAtAPath) {
  const Manager manager(dir_.path("notify"));
  set("NOTIFY_SOCKET", dir_.path("notify"));
  const Notifier notifier;
  EXPECT_EQ(manager.next(), "");
  notifier.ready();
  EXPECT_EQ(manager.next(), "READY=1");
  notifier.status("standby: waits for the lock");
  EXPECT_EQ(manager.next(), "STATUS=standby: waits for the lock");
  notifier.alive();
  EXPECT_EQ(manager.next(), "WATCHDOG=1");
  notifier.stopping();
  EXPECT_EQ(manager.next(), "STOPPING=1");
  EXPECT_EQ(manager.next(), "");
}

TEST_F(Notify, TellsTheManagerAtAnAbstractName) {
  const std::string name = "@fo-notify-" + std::to_string(::getpid());
  const Manager manager(name);
  set("NOTIFY_SOCKET", name);
  const Notifier notifier;
  notifier.ready();
  EXPECT_EQ(manager.next(), "READY=1");
}

TEST_F(Notify, NeitherTheSocketNorTheVariablesReachAChild) {
  const Manager manager(dir_.path("notify"));
  set("NOTIFY_SOCKET", dir_.path("notify"));
  set("WATCHDOG_USEC", "1000000");
  set("WATCHDOG_PID", std::to_string(::getpid()));
  const Notifier notifier;
  const auto child =
      run_captured({"sh", "-c", "env; ls -l /proc/$$/fd"}, base::Deadline::after(30s));
  ASSERT_TRUE(child);
  EXPECT_EQ(child->status, 0);
  EXPECT_EQ(child->out.find("NOTIFY_SOCKET"), std::string::npos);
  EXPECT_EQ(child->out.find("WATCHDOG"), std::string::npos);
  EXPECT_EQ(child->out.find("socket:"), std::string::npos) << child->out;
}

TEST_F(Notify, WithoutAManagerItDoesNothing) {
  const std::ptrdiff_t before = fo::test::open_fds();
  for (const char* address :
       {static_cast<const char*>(nullptr), "", "relative", "/", "@", "vsock:2:1234"}) {
    environment_.unset("NOTIFY_SOCKET");
    if (address != nullptr) set("NOTIFY_SOCKET", address);
    set("WATCHDOG_USEC", "1000000");
    const Notifier notifier;
    notifier.ready();
    notifier.status("x");
    EXPECT_EQ(notifier.watchdog_interval(), std::nullopt);
    EXPECT_EQ(::getenv("WATCHDOG_USEC"), nullptr);
    EXPECT_EQ(fo::test::open_fds(), before);
  }
  set("NOTIFY_SOCKET", "/" + std::string(200, 'x'));
  Notifier().ready();
}

TEST_F(Notify, AManagerThatComesLateOrAnewIsTold) {
  set("NOTIFY_SOCKET", dir_.path("notify"));
  const Notifier notifier;
  notifier.ready();
  for (int i = 0; i < 2; ++i) {
    const Manager manager(dir_.path("notify"));
    notifier.alive();
    EXPECT_EQ(manager.next(), "WATCHDOG=1");
    std::filesystem::remove(dir_.path("notify"));
    notifier.alive();
  }
}

TEST_F(Notify, AManagerThatDoesNotReadHoldsNobodyUp) {
  const Manager manager(dir_.path("notify"));
  set("NOTIFY_SOCKET", dir_.path("notify"));
  const Notifier notifier;
  for (int i = 0; i < 10000; ++i) notifier.alive();
  EXPECT_EQ(manager.next(), "WATCHDOG=1");
  while (!manager.next().empty()) {
  }
  notifier.stopping();
  EXPECT_EQ(manager.next(), "STOPPING=1");
}

/// Whether a thread of this process sleeps in the kernel.
bool is_asleep(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string line((std::istreambuf_iterator<char>(stat)), {});
  return line.find(") S ") != std::string::npos;
}

/// Reads the messages when `thread` sleeps, or `done` is set; returns whether "READY=1" was among
/// them.
bool read_when_asleep(const Manager& manager, pid_t thread, const std::atomic<bool>& done) {
  while (!is_asleep(thread) && !done) std::this_thread::yield();
  bool is_ready = false;
  do {
    for (std::string next = manager.next(); !next.empty(); next = manager.next()) {
      is_ready = is_ready || next == "READY=1";
    }
  } while (!done);
  return is_ready || manager.next() == "READY=1";
}

TEST_F(Notify, ThatAServiceIsReadyReachesAManagerThatReadsALittleLater) {
  const Manager manager(dir_.path("notify"));
  set("NOTIFY_SOCKET", dir_.path("notify"));
  const Notifier notifier;
  const pid_t thread = ::gettid();
  // On a busy machine, the manager may be too late sometimes.
  bool is_ready = false;
  for (int round = 0; round < 20 && !is_ready; ++round) {
    for (int i = 0; i < 10000; ++i) notifier.alive();
    std::atomic<bool> done = false;
    auto reader =
        std::async(std::launch::async, [&] { return read_when_asleep(manager, thread, done); });
    notifier.ready();
    done = true;
    is_ready = reader.get();
  }
  EXPECT_TRUE(is_ready);
}

TEST_F(Notify, ThatAServiceIsReadyIsNotSaidForEverToAManagerThatDoesNotRead) {
  const Manager manager(dir_.path("notify"));
  set("NOTIFY_SOCKET", dir_.path("notify"));
  const Notifier notifier;
  for (int i = 0; i < 10000; ++i) notifier.alive();
  notifier.ready();
  while (!manager.next().empty()) {
  }
  notifier.ready();
  EXPECT_EQ(manager.next(), "READY=1");
}

TEST_F(Notify, AStatusIsOneLineOfBoundedLength) {
  const Manager manager(dir_.path("notify"));
  set("NOTIFY_SOCKET", dir_.path("notify"));
  const Notifier notifier;
  notifier.status("a\nREADY=1\nb");
  EXPECT_EQ(manager.next(), "STATUS=a READY=1 b");
  notifier.status(std::string(1 << 20, 'x'));
  EXPECT_EQ(manager.next(), "STATUS=" + std::string(1024, 'x'));
}

TEST_F(Notify, TheWatchdogWantsToHearTwiceInItsTime) {
  const Manager manager(dir_.path("notify"));
  const auto interval = [&](const char* usec, const std::string& pid) {
    set("NOTIFY_SOCKET", dir_.path("notify"));
    set("WATCHDOG_USEC", usec);
    if (!pid.empty()) set("WATCHDOG_PID", pid);
    return Notifier().watchdog_interval();
  };
  EXPECT_EQ(interval("30000000", ""), 15s);
  EXPECT_EQ(interval("3000000", std::to_string(::getpid())), 1500ms);
  EXPECT_EQ(interval("3000000", std::to_string(::getppid())), std::nullopt);
  EXPECT_EQ(interval("3000000", "me"), std::nullopt);
  for (const char* bad : {"", "0", "-1", "1s", "99999999999999999999", "18446744073709551615"}) {
    EXPECT_EQ(interval(bad, ""), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace fo::os
