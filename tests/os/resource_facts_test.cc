// How the kernel releases locks and files when a process dies: the facts that failover locks rely
// on. The order of releases is read from inotify, which reports each file just before its lock is
// released.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "os/file/file.h"
#include "os/file/file_lock.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "support/must_run.h"
#include "support/temp_dir.h"

namespace fo::os {
namespace {

using base::UniqueFd;
using fo::test::TempDir;

constexpr base::Duration kLongWait = std::chrono::seconds(20);
// Enough files to take some time.
constexpr int kMany = 3000;
// Repetitions, because timing may hide the order.
constexpr int kTries = 300;

struct Word : Pipe {
  void say() const {
    if (::write(writer.get(), "", 1) != 1) base::throw_errno(errno, "write to a pipe");
  }
  void receive() const {
    char byte = 0;
    if (::read(reader.get(), &byte, 1) != 1) base::throw_errno(errno, "read from a pipe");
  }
};

/// A forked process that runs `prepare` and then waits until it is killed.
class Victim {
 public:
  explicit Victim(const std::function<void()>& prepare)
      : child_(fork_child(
            [&] {
              prepare();
              ready_.say();
              for (;;) ::pause();
              return 0;
            },
            {.parent_death_signal = SIGKILL})) {
    ready_.receive();
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;
  ~Victim() { die(SIGKILL); }

  void signal(int signal) const { child_.signal(signal); }
  void die(int signal) {
    if (!std::exchange(alive_, false)) return;
    child_.signal(signal);
    EXPECT_EQ(child_.wait(base::Deadline::after(kLongWait)), 128 + signal);
  }

 private:
  Word ready_;
  Child child_;
  bool alive_ = true;
};

/// The events of a folder's files in the kernel's order: "close NAME" or "modify NAME".
class Watch {
 public:
  explicit Watch(const std::string& folder) : fd_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    constexpr std::uint32_t kEvents = IN_CLOSE_WRITE | IN_MODIFY;
    EXPECT_GE(::inotify_add_watch(fd_.get(), folder.c_str(), kEvents), 0);
  }
  void await_first() const {
    pollfd ready{fd_.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, base::Deadline::after(kLongWait).poll_timeout()), 1);
  }
  std::vector<std::string> read() const {
    std::vector<std::string> events;
    alignas(inotify_event) std::array<char, 65536> buffer{};
    ssize_t got = 0;
    while ((got = ::read(fd_.get(), buffer.data(), buffer.size())) > 0) {
      for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
        inotify_event event{};
        std::memcpy(&event, &buffer[at], sizeof event);
        const std::string name = event.len > 0 ? &buffer[at + sizeof event] : "";
        events.push_back(((event.mask & IN_MODIFY) != 0 ? "modify " : "close ") + name);
        at += sizeof event + event.len;
      }
    }
    return events;
  }

 private:
  UniqueFd fd_;
};

/// Opens a file under a given number while the process lives.
void open_at(int number, const std::string& path) {
  const UniqueFd fd = open_file(path, O_RDWR | O_CREAT);
  if (::dup3(fd.get(), number, O_CLOEXEC) != number) base::throw_errno(errno, "dup3");
}

void open_many(const std::string& path) {
  raise_fd_limit();
  for (int k = 0; k < kMany; ++k) open_at(200 + k, path);
}

// So a lock that must outlive the device's files needs a lower number.
TEST(DeathOfAProcess, ReleasesItsFilesHighestNumberFirst) {
  const TempDir dir;
  // Opened in another order than numbered.
  Victim victim([&] {
    open_at(200, dir.path("device"));
    open_at(300, dir.path("high lock"));
    open_at(100, dir.path("low lock"));
  });
  const Watch watch(dir.path());
  victim.die(SIGKILL);
  EXPECT_EQ(watch.read(),
            (std::vector<std::string>{"close high lock", "close device", "close low lock"}));
}

// So no number lets a lock outlive memory without a descriptor.
TEST(DeathOfAProcess, ReleasesWhatIsOnlyMappedAfterAllDescriptors) {
  const TempDir dir;
  Victim victim([&] {
    open_at(100, dir.path("low lock"));
    const UniqueFd memory = open_file(dir.path("mapped"), O_RDWR | O_CREAT);
    if (::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0) == MAP_FAILED) {
      base::throw_errno(errno, "mmap");
    }
  });
  const Watch watch(dir.path());
  victim.die(SIGKILL);
  EXPECT_EQ(watch.read(), (std::vector<std::string>{"close low lock", "close mapped"}));
}

// A process releases its share of an inherited lock when it begins to close its files, wherever the
// descriptor is. If another process with a share has ended by then, the lock is free while the
// first still releases its files, so the gate of --gpu-free is needed.
TEST(DeathOfAProcess, GivesUpASharedLockBeforeItsOtherFiles) {
  if (std::thread::hardware_concurrency() < 2)
    FO_SKIP("processors", "one processor: no two ends overlap");
  const TempDir dir;
  bool seen = false;
  for (int i = 0; i < kTries && !seen; ++i) {
    UniqueFd lock = open_file(dir.path("lock"), O_RDWR | O_CREAT);
    ASSERT_TRUE(try_lock_file(lock.get()));
    Victim with_device([&] { open_many(dir.path("device")); });
    Victim other([] {});
    lock.reset();
    const Watch watch(dir.path());
    with_device.signal(SIGKILL);
    watch.await_first();
    other.die(SIGKILL);
    with_device.die(SIGKILL);
    const std::vector<std::string> events = watch.read();
    ASSERT_EQ(std::count(events.begin(), events.end(), "close lock"), 1);
    seen = events.back() != "close lock";
  }
  EXPECT_TRUE(seen);
}

// A POSIX lock is released before everything else, whatever its number.
TEST(DeathOfAProcess, EndsAPosixLockBeforeAnyFile) {
  if (std::thread::hardware_concurrency() < 2)
    FO_SKIP("processors", "one processor: seen when all is over");
  const TempDir dir;
  const auto lock_posix = [](int fd, int command, short type) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    return ::fcntl(fd, command, &lock) == 0;
  };
  const UniqueFd fd = open_file(dir.path("lock"), O_RDWR | O_CREAT);
  bool seen = false;
  for (int i = 0; i < kTries && !seen; ++i) {
    Victim victim([&] {
      open_at(100, dir.path("lock"));
      if (!lock_posix(100, F_SETLK, F_WRLCK)) base::throw_errno(errno, "lock");
      open_many(dir.path("device"));
    });
    const Watch watch(dir.path());
    victim.signal(SIGKILL);
    ASSERT_TRUE(lock_posix(fd.get(), F_SETLKW, F_WRLCK));
    const std::vector<std::string> events = watch.read();
    seen = std::count(events.begin(), events.end(), "close lock") == 0;
    ASSERT_TRUE(lock_posix(fd.get(), F_SETLK, F_UNLCK));
  }
  EXPECT_TRUE(seen);
}

TEST(DeathOfAProcess, KeepsTheLockUntilTheCoreIsWritten) {
  if (read_file("/proc/sys/kernel/core_pattern", 4096) != "core\n") {
    FO_SKIP("core", "core dumps go elsewhere here");
  }
  const TempDir dir;
  Victim victim([&] {
    open_at(100, dir.path("lock"));
    rlimit limit{};
    if (::getrlimit(RLIMIT_CORE, &limit) != 0) base::throw_errno(errno, "getrlimit");
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_CORE, &limit) != 0 || ::chdir(dir.path().c_str()) != 0) {
      base::throw_errno(errno, "prepare for a core dump");
    }
    std::ofstream("/proc/self/coredump_filter") << "0x10";  // small
  });
  const Watch watch(dir.path());
  victim.die(SIGQUIT);
  const std::vector<std::string> events = watch.read();
  const auto core = std::find_if(events.begin(), events.end(), [](const std::string& event) {
    return event.starts_with("modify core");
  });
  if (core == events.end()) FO_SKIP("core", "no core dump is permitted here");
  const auto released = std::find(events.begin(), events.end(), "close lock");
  ASSERT_NE(released, events.end());
  EXPECT_TRUE(std::none_of(released, events.end(),
                           [](const std::string& event) { return event.starts_with("modify"); }));
}

// So a child must close, and never unlock.
TEST(Flock, UnlockedThroughAnInheritedDescriptorIsFreeForAll) {
  const TempDir dir;
  const UniqueFd held = open_file(dir.path("lock"), O_RDWR | O_CREAT);
  ASSERT_TRUE(try_lock_file(held.get()));
  const UniqueFd other = open_file(dir.path("lock"), O_RDWR);
  const auto run = [](const std::function<int()>& body) {
    return fork_child(body).wait(base::Deadline::after(kLongWait));
  };
  ASSERT_EQ(run([&] { return ::close(held.get()); }), 0);
  EXPECT_FALSE(try_lock_file(other.get()));
  ASSERT_EQ(run([&] { return ::flock(held.get(), LOCK_UN); }), 0);
  EXPECT_TRUE(try_lock_file(other.get()));
}

// So a lock file must never be removed or replaced, and holders check for that.
TEST(Flock, OnAReplacedFileHasTwoHolders) {
  const TempDir dir;
  const UniqueFd first = open_file(dir.path("lock"), O_RDWR | O_CREAT);
  ASSERT_TRUE(try_lock_file(first.get()));
  std::filesystem::remove(dir.path("lock"));
  const UniqueFd second = open_file(dir.path("lock"), O_RDWR | O_CREAT);
  EXPECT_TRUE(try_lock_file(second.get()));
}

// So /proc/locks is read, and the probe is only for cases that it cannot decide.
TEST(Flock, ProbedByASharedLockLooksBusyToOthers) {
  const TempDir dir;
  const UniqueFd contender = open_file(dir.path("lock"), O_RDWR | O_CREAT);
  UniqueFd probe = open_file(dir.path("lock"), O_RDONLY);
  ASSERT_EQ(::flock(probe.get(), LOCK_SH | LOCK_NB), 0);
  EXPECT_FALSE(try_lock_file(contender.get()));
  probe.reset();
  EXPECT_TRUE(try_lock_file(contender.get()));
}

}  // namespace
}  // namespace fo::os
