#include "lock/flock/flock_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "lock/grant.h"
#include "lock/lock_status.h"
#include "lock/support.h"
#include "os/file/file.h"
#include "os/file/pipe.h"
#include "support/fds.h"
#include "support/must_run.h"
#include "support/soon.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

namespace fs = std::filesystem;
using base::Deadline;
using base::ExitStatus;
using os::LockWait;
using test::Forked;
using test::holder;
using test::say;
using test::slurp;
using test::spill;
using test::status_of;
using test::TempDir;

using fo::test::soon;
Deadline now() { return Deadline::after(base::Duration::zero()); }

// Waits until a process is blocked on the file at `path`.
void await_waiter(const std::string& path) {
  const base::UniqueFd fd = os::open_file(path, O_RDONLY);
  const os::FileKey key = os::file_key(fd.get());
  test::await([&] { return !os::visible_file_locks(key).waiters.empty(); });
}

class FlockLockTest : public test::FdCounting {
 protected:
  TempDir dir_;
  std::string path_ = dir_.path("failover.lock");
};

TEST_F(FlockLockTest, GrantWritesIdAndRecord) {
  FlockLock lock(path_, "engine-0");
  EXPECT_EQ(slurp(path_), "");
  const auto result = lock.acquire(soon());
  ASSERT_EQ(result.outcome, LockWait::kLocked);
  EXPECT_EQ(result.grant.id, "engine-0");
  EXPECT_EQ(result.grant.generation, 1U);
  EXPECT_EQ(slurp(path_), "engine-0\n");
  EXPECT_EQ(fs::file_size(path_ + ".grant"), kGrantFileSize);
  const GrantRecord record = decode_grant(slurp(path_ + ".grant")).record;
  struct stat info {};
  ASSERT_EQ(::fstat(lock.fds().at(0), &info), 0);
  EXPECT_EQ(record.holder, "engine-0");
  EXPECT_EQ(record.pid, ::getpid());
  EXPECT_EQ(record.inode, info.st_ino);
  EXPECT_EQ(record.granted_at, text::format_time(result.grant.granted_at));
  EXPECT_EQ(holder_state(record, now()), HolderState::kRunning);
  EXPECT_FALSE(lock.check());
}

TEST_F(FlockLockTest, ShorterIdReplacesALongerOneWhole) {
  { FlockLock(path_, "a-much-longer-name").acquire(soon()); }
  FlockLock lock(path_, "b");
  EXPECT_EQ(lock.acquire(soon()).grant.generation, 2U);
  EXPECT_EQ(slurp(path_), "b\n");
}

TEST_F(FlockLockTest, TwentyContendersExcludeEachOtherAndCountUp) {
  constexpr int kContenders = 20;
  constexpr int kRounds = 10;
  const std::string shared = dir_.path("shared");
  spill(shared, "0");
  std::vector<std::unique_ptr<Forked>> contenders;
  for (int i = 0; i < kContenders; ++i) {
    contenders.push_back(std::make_unique<Forked>([&, i](int) {
      for (int round = 0; round < kRounds; ++round) {
        FlockLock lock(path_, "engine-" + std::to_string(i));
        const auto result = lock.acquire(soon());
        if (result.outcome != LockWait::kLocked) return 1;
        // With two holders at once, a count is lost or a generation differs.
        const std::uint64_t seen = std::stoull(slurp(shared));
        if (result.grant.generation != seen + 1) return 2;
        std::this_thread::yield();
        spill(shared, std::to_string(seen + 1));
      }
      return 0;
    }));
  }
  for (const auto& contender : contenders) EXPECT_EQ(contender->wait(), 0);
  EXPECT_EQ(slurp(shared), std::to_string(kContenders * kRounds));
}

TEST_F(FlockLockTest, WaiterFollowsAFileReplacedMeanwhile) {
  Forked first(holder(path_, "engine-0"));
  ASSERT_EQ(first.read(), 1U);
  Forked second(holder(path_, "engine-1"));
  await_waiter(path_);
  spill(dir_.path("new"), "");
  fs::rename(dir_.path("new"), path_);
  first.kill();
  EXPECT_EQ(second.read(), 2U);
  EXPECT_EQ(find_owner({LockUri::Kind::kFlock, path_}), "engine-1");
}

TEST_F(FlockLockTest, WaiterOfAnUnlinkedFileMakesANewOne) {
  Forked first(holder(path_, "engine-0"));
  ASSERT_EQ(first.read(), 1U);
  Forked second(holder(path_, "engine-1"));
  await_waiter(path_);
  fs::remove(path_);
  first.kill();
  EXPECT_EQ(second.read(), 2U);
  EXPECT_EQ(find_owner({LockUri::Kind::kFlock, path_}), "engine-1");
}

TEST_F(FlockLockTest, WaiterOfTheOldFileWaitsAgainForTheHolderOfTheNew) {
  Forked first(holder(path_, "engine-0"));
  ASSERT_EQ(first.read(), 1U);
  Forked waiter(holder(path_, "engine-2"));
  await_waiter(path_);
  fs::remove(path_);
  fs::remove(path_ + ".grant");  // otherwise the newcomer is refused
  Forked newcomer(holder(path_, "engine-1"));
  ASSERT_EQ(newcomer.read(), 1U);
  first.kill();
  await_waiter(path_);
  EXPECT_EQ(find_owner({LockUri::Kind::kFlock, path_}), "engine-1");
  newcomer.kill();
  EXPECT_EQ(waiter.read(), 2U);
}

TEST_F(FlockLockTest, HolderSeesItsFileReplaced) {
  FlockLock lock(path_, "engine-0");
  lock.acquire(soon());
  fs::rename(path_, dir_.path("aside"));
  const std::optional<Loss> loss = lock.check();
  ASSERT_TRUE(loss);
  EXPECT_TRUE(loss->is_overlap_known);
  EXPECT_GT(loss->overlap, base::Duration::zero());
  spill(path_, "");
  EXPECT_TRUE(lock.check());
  fs::rename(dir_.path("aside"), path_);
  EXPECT_FALSE(lock.check());
}

TEST_F(FlockLockTest, RefusesBesideALiveHolderOfAReplacedFile) {
  Forked first(holder(path_, "engine-0"));
  ASSERT_EQ(first.read(), 1U);
  // The open old file keeps its inode number from the new one.
  fs::remove(path_);
  FlockLock second(path_, "engine-1");
  const auto failure = test::failure_of([&] { second.acquire(soon()); });
  EXPECT_EQ(failure.status, ExitStatus::kConfig);
  EXPECT_EQ(failure.message, "acquire lock '" + path_ + "': process " +
                                 std::to_string(first.pid()) +
                                 " ('engine-0') holds a file that was replaced by this one");
  EXPECT_FALSE(find_owner({LockUri::Kind::kFlock, path_}));
  EXPECT_EQ(decode_grant(slurp(path_ + ".grant")).record.holder, "engine-0");
  first.kill();
  FlockLock third(path_, "engine-1");
  EXPECT_EQ(third.acquire(soon()).grant.generation, 2U);
}

TEST_F(FlockLockTest, DamagedRecordNeverLowersTheGeneration) {
  int count = 0;
  for (const std::string& junk : {std::string("junk"), std::string(1024, '{'), std::string()}) {
    const std::string path = path_ + std::to_string(++count);
    { FlockLock(path, "engine-0").acquire(soon()); }
    spill(path + ".grant", junk);
    std::uint64_t last = 0;
    {
      FlockLock lock(path, "engine-0");
      last = lock.acquire(soon()).grant.generation;
    }
    EXPECT_GT(last, 1'000'000'000'000U);
    EXPECT_EQ(fs::file_size(path + ".grant"), kGrantFileSize);
    EXPECT_EQ(FlockLock(path, "engine-0").acquire(soon()).grant.generation, last + 1);
  }
}

TEST_F(FlockLockTest, RemovedRecordIsMadeAgainForAWaiter) {
  Forked first(holder(path_, "engine-0"));
  ASSERT_EQ(first.read(), 1U);
  Forked second(holder(path_, "engine-1"));
  await_waiter(path_);
  fs::remove(path_ + ".grant");
  first.kill();
  EXPECT_GT(second.read().value_or(0), 1U);
  EXPECT_EQ(decode_grant(slurp(path_ + ".grant")).record.holder, "engine-1");
}

TEST_F(FlockLockTest, ExcludesFlockOfUtilLinuxBothWays) {
  {
    FlockLock lock(path_, "engine-0");
    lock.acquire(soon());
    EXPECT_EQ(os::spawn({"flock", "-n", "-E", "9", path_, "true"}).wait(soon()), 9);
  }
  os::Pipe pipe;
  const os::SpawnOptions options{.new_process_group = true, .stdout_fd = pipe.writer.get()};
  const os::Child other =
      os::spawn({"flock", path_, "sh", "-c", "echo ready; exec sleep 100"}, options);
  pipe.writer.reset();
  char ready[6];
  ASSERT_EQ(::read(pipe.reader.get(), ready, sizeof ready), 6);
  FlockLock lock(path_, "engine-0");
  EXPECT_EQ(lock.acquire(now()).outcome, LockWait::kDeadline);
  ASSERT_EQ(::kill(-other.pid(), SIGKILL), 0);
  EXPECT_EQ(other.wait(soon()), 128 + SIGKILL);
  EXPECT_EQ(lock.acquire(soon()).outcome, LockWait::kLocked);
}

TEST_F(FlockLockTest, FullDiskCanNotStopAGrant) {
  // Runs in its own mount namespace, so that nothing stays mounted.
  enum Answer { kDone = 0, kNoMount = 1, kNotFull, kNotGranted, kNotRefused };
  Forked attempt([&](int) {
    const std::string root = dir_.path("disk");
    fs::create_directory(root);
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("fo-test", root.c_str(), "tmpfs", 0, "size=64k") != 0) {
      return kNoMount;
    }
    FlockLock lock(root + "/lock", "engine-0");
    const base::UniqueFd filler = os::open_file(root + "/filler", O_WRONLY | O_CREAT);
    const std::string block(4096, 'x');
    while (::write(filler.get(), block.data(), block.size()) > 0) {
    }
    if (errno != ENOSPC) return kNotFull;
    if (lock.acquire(soon()).grant.generation != 1 || slurp(root + "/lock") != "engine-0\n" ||
        decode_grant(slurp(root + "/lock.grant")).record.generation != 1) {
      return kNotGranted;
    }
    const auto fresh = status_of([&] { FlockLock(root + "/other", "engine-0"); });
    return fresh == ExitStatus::kCannotCreate ? kDone : kNotRefused;
  });
  const int answer = attempt.wait();
  if (answer == kNoMount) FO_SKIP("root", "mounting a tmpfs is not permitted here");
  EXPECT_EQ(answer, kDone);
}

TEST_F(FlockLockTest, WhatIsMountedOverItsFolderWakesTheHolder) {
  enum Answer { kDone = 0, kNoMount = 1, kNotWoken, kNotLost };
  Forked attempt([&](int) {
    const std::string root = dir_.path("disk");
    fs::create_directory(root);
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      return kNoMount;
    }
    FlockLock lock(root + "/lock", "engine-0");
    lock.acquire(soon());
    const int watch = lock.watch().fd;
    if (lock.check()) return kNotLost;
    if (::mount("fo-test", root.c_str(), "tmpfs", 0, "size=64k") != 0) return kNoMount;
    pollfd ready{watch, POLLIN, 0};
    if (::poll(&ready, 1, soon().poll_timeout()) != 1) return kNotWoken;
    return lock.check() ? kDone : kNotLost;
  });
  const int answer = attempt.wait();
  if (answer == kNoMount) FO_SKIP("root", "mounting a tmpfs is not permitted here");
  EXPECT_EQ(answer, kDone);
}

TEST_F(FlockLockTest, CanNotBeOpened) {
  const auto opening = [&](const std::string& path) {
    return status_of([&] { FlockLock(path, "engine-0"); });
  };
  EXPECT_EQ(opening(dir_.path("absent/lock")), ExitStatus::kCannotCreate);
  EXPECT_EQ(opening(fs::path(path_).parent_path()), ExitStatus::kCannotCreate);
  ASSERT_EQ(::mkfifo(dir_.path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(opening(dir_.path("fifo")), ExitStatus::kCannotCreate);
  EXPECT_EQ(opening("/proc/version"),
            ::geteuid() == 0 ? ExitStatus::kCannotCreate : ExitStatus::kNotPermitted);
  fs::create_directory(path_ + ".grant");
  EXPECT_EQ(opening(path_), ExitStatus::kCannotCreate);
}

TEST_F(FlockLockTest, PlantedLinksAreNotFollowed) {
  const std::string precious = dir_.path("precious");
  const auto expect_refused = [&](const std::string& which, const std::string& reason) {
    const std::string what = which.empty() ? "lock file" : "grant record";
    const auto failure = test::failure_of([&] { FlockLock(path_, "engine-0"); });
    EXPECT_EQ(failure.status, ExitStatus::kCannotCreate);
    EXPECT_EQ(failure.message, "open " + what + " '" + path_ + which + "': " + reason);
    EXPECT_EQ(slurp(precious), "");
  };
  spill(precious, "");
  for (const std::string& target : {precious, dir_.path("absent")}) {
    for (const char* which : {"", ".grant"}) {
      fs::create_symlink(target, path_ + which);
      expect_refused(which, "a symbolic link, which is not followed");
      EXPECT_FALSE(fs::exists(dir_.path("absent")));
      fs::remove(path_ + which);
      fs::remove(path_);
    }
  }
  for (const char* which : {"", ".grant"}) {
    fs::remove(path_);
    fs::create_hard_link(precious, path_ + which);
    expect_refused(which, "the file has more than one hard link");
    fs::remove(path_ + which);
  }
  FlockLock(path_, "engine-0").acquire(soon());
  // For a holder, a link in its file's place is another file, whatever it points to.
  FlockLock lock(path_, "engine-0");
  ASSERT_EQ(lock.acquire(soon()).outcome, LockWait::kLocked);
  fs::rename(path_, dir_.path("aside"));
  fs::create_symlink(dir_.path("aside"), path_);
  EXPECT_TRUE(lock.check());
}

TEST_F(FlockLockTest, AFileThatIsNoLocksIsLeftAlone) {
  for (const std::string& text :
       {std::string("{\"model\": \"x\"}\n"), std::string("a\nb\n"), std::string(300, 'x'),
        std::string("\x7f"
                    "ELF")}) {
    spill(path_, text);
    const auto failure = test::failure_of([&] { FlockLock(path_, "engine-0"); });
    EXPECT_EQ(failure.status, ExitStatus::kBadData);
    EXPECT_EQ(failure.message,
              "open lock file '" + path_ +
                  "': not a lock file: a lock file is empty, or has one line with a holder's id");
    EXPECT_EQ(slurp(path_), text);
    EXPECT_FALSE(fs::exists(path_ + ".grant"));
  }
  spill(path_, "engine-0");
  spill(path_ + ".grant", std::string(kGrantFileSize + 1, ' '));
  EXPECT_EQ(status_of([&] { FlockLock(path_, "engine-0"); }), ExitStatus::kBadData);
  EXPECT_EQ(slurp(path_ + ".grant"), std::string(kGrantFileSize + 1, ' '));
}

TEST_F(FlockLockTest, WhatAKilledHolderLeftHalfWrittenIsALockFile) {
  { FlockLock(path_, "{odd}").acquire(soon()); }
  EXPECT_EQ(FlockLock(path_, "{odd}").acquire(soon()).grant.generation, 2U);
  spill(path_, "{odd}\ngine-with-a-long-name\n");
  EXPECT_EQ(FlockLock(path_, "b").acquire(soon()).grant.generation, 3U);
  EXPECT_EQ(slurp(path_), "b\n");
}

TEST_F(FlockLockTest, RefusesABadId) {
  EXPECT_EQ(status_of([&] { FlockLock(path_, "a\nb"); }), ExitStatus::kConfig);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(FlockLockTest, SitsOnTheDescriptorAskedFor) {
  FlockLock lock(path_, "engine-0", 200);
  EXPECT_EQ(lock.fds().at(0), 200);
  EXPECT_EQ(lock.acquire(soon()).outcome, LockWait::kLocked);
  EXPECT_EQ(::fcntl(200, F_GETFD), FD_CLOEXEC);
  for (const int fd : {-1, 0, 2, 200, 1 << 30}) {
    EXPECT_EQ(status_of([&] { FlockLock(dir_.path("other"), "engine-0", fd); }), ExitStatus::kUsage)
        << fd;
  }
}

TEST_F(FlockLockTest, StaysOnItsDescriptorWhenTheFileIsReplaced) {
  Forked first(holder(path_, "engine-0"));
  ASSERT_EQ(first.read(), 1U);
  Forked second([&](int ready) {
    FlockLock lock(path_, "engine-1", 100);
    lock.acquire(soon());
    say(ready, static_cast<std::uint64_t>(lock.fds().at(0)));
    say(ready, lock.check() ? 1 : 0);
    return 0;
  });
  await_waiter(path_);
  fs::remove(path_);
  first.kill();
  EXPECT_EQ(second.read(), 100U);
  EXPECT_EQ(second.read(), 0U);
}

TEST_F(FlockLockTest, LeavesClosedStandardStreamsAlone) {
  Forked attempt([&](int ready) {
    ::close(STDIN_FILENO);
    ::close(STDOUT_FILENO);
    FlockLock lock(path_, "engine-0");
    lock.acquire(soon());
    say(ready, static_cast<std::uint64_t>(lock.fds().at(0)));
    return ::fcntl(STDIN_FILENO, F_GETFD) < 0 && ::fcntl(STDOUT_FILENO, F_GETFD) < 0 ? 0 : 1;
  });
  EXPECT_GE(attempt.read().value_or(0), 3U);
  EXPECT_EQ(attempt.wait(), 0);
}

}  // namespace
}  // namespace fo::lock
