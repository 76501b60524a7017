#include "os/file/file_lock.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/file.h>

#include <filesystem>
#include <thread>

#include "os/file/file.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/forked.h"
#include "support/temp_dir.h"

namespace fo::os {
namespace {

using fo::test::Forked;
using fo::test::kLong;
using fo::test::say;
using fo::test::TempDir;

constexpr FileKey kKey{0xfe, 0, 10952893};

std::function<int(int)> flock_holder(const std::string& path) {
  return [path](int ready) {
    const base::UniqueFd fd = open_file(path, O_RDWR | O_CREAT);
    say(ready, ::flock(fd.get(), LOCK_EX) == 0 ? 1 : 0);
    return fo::test::pause_for_ever();
  };
}

LockWait lock_file(int fd, const base::Deadline& deadline, int interrupt_fd = -1) {
  return LockWaiter(fd).wait(deadline, interrupt_fd);
}

std::size_t thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST(ProcLocks, TellsHolderAndWaiters) {
  const FileLocks locks = parse_file_locks(
      "1: POSIX  ADVISORY  WRITE 11 fe:00:10952893 0 EOF\n"
      "2: FLOCK  ADVISORY  WRITE 5546 fe:00:10952893 0 EOF\n"
      "2: -> FLOCK  ADVISORY  WRITE 5547 fe:00:10952893 0 EOF\n"
      "2: -> FLOCK  ADVISORY  WRITE 5548 fe:00:10952893 0 EOF\n"
      "3: FLOCK  ADVISORY  WRITE 1 fe:00:10952894 0 EOF\n"
      "4: FLOCK  ADVISORY  WRITE 2 fe:01:10952893 0 EOF\n",
      kKey);
  EXPECT_EQ(locks.holder, 5546);
  EXPECT_EQ(locks.waiters, (std::vector<pid_t>{5547, 5548}));
}

TEST(ProcLocks, DoesNotTakeAProbeForAHolder) {
  EXPECT_FALSE(parse_file_locks("1: FLOCK  ADVISORY  READ 7 fe:00:10952893 0 EOF\n", kKey).holder);
}

TEST(ProcLocks, PassesOverWhatItDoesNotKnow) {
  for (const char* text :
       {"", "\n\n", "1:", "1: FLOCK", "1: FLOCK ADVISORY WRITE x fe:00:10952893",
        "1: FLOCK ADVISORY WRITE 1 fe:00", "1: -> ", "1: FLOCK ADVISORY WRITE 1 zz:00:10952893"}) {
    const FileLocks locks = parse_file_locks(text, kKey);
    EXPECT_FALSE(locks.holder) << text;
    EXPECT_TRUE(locks.waiters.empty()) << text;
  }
}

TEST(FileLock, IsTakenAtOnceWhenFree) {
  const TempDir dir;
  const base::UniqueFd fd = open_file(dir.path("l"), O_RDWR | O_CREAT);
  EXPECT_EQ(lock_file(fd.get(), base::Deadline::after(base::Duration::zero())), LockWait::kLocked);
  const base::UniqueFd other = open_file(dir.path("l"), O_RDWR);
  EXPECT_FALSE(try_lock_file(other.get()));
}

TEST(FileLock, OfAnEntryIsNotTakenWhereAnotherFileOrNoneIsInItsPlace) {
  const TempDir dir;
  const std::string path = dir.path("l");
  const base::UniqueFd fd = open_file(path, O_RDWR | O_CREAT);
  EXPECT_TRUE(try_lock_entry(AT_FDCWD, path.c_str(), fd.get()));
  std::filesystem::rename(path, dir.path("m"));
  EXPECT_FALSE(try_lock_entry(AT_FDCWD, path.c_str(), fd.get()));
  static_cast<void>(open_file(path, O_RDWR | O_CREAT));
  EXPECT_FALSE(try_lock_entry(AT_FDCWD, path.c_str(), fd.get()));
}

TEST(FileLock, TimesOutAndLeavesNoThreadAndNoLock) {
  const TempDir dir;
  std::thread([] {}).join();  // the first one starts those of sanitizers, too
  const std::size_t before = thread_count();
  base::UniqueFd held = open_file(dir.path("l"), O_RDWR | O_CREAT);
  ASSERT_TRUE(try_lock_file(held.get()));
  const base::UniqueFd waiter = open_file(dir.path("l"), O_RDWR);
  EXPECT_EQ(lock_file(waiter.get(), base::Deadline::after(std::chrono::milliseconds(1))),
            LockWait::kDeadline);
  EXPECT_EQ(thread_count(), before);
  held.reset();
  const base::UniqueFd third = open_file(dir.path("l"), O_RDWR);
  EXPECT_TRUE(try_lock_file(third.get()));
}

TEST(FileLock, WaitEndsWhenTheInterruptIsReadable) {
  const TempDir dir;
  const base::UniqueFd held = open_file(dir.path("l"), O_RDWR | O_CREAT);
  ASSERT_TRUE(try_lock_file(held.get()));
  const base::UniqueFd waiter = open_file(dir.path("l"), O_RDWR);
  const base::UniqueFd interrupt(::eventfd(1, EFD_CLOEXEC));
  EXPECT_EQ(lock_file(waiter.get(), base::Deadline::never(), interrupt.get()),
            LockWait::kInterrupted);
}

// The wake-up signal may arrive at any moment of the thread's life.
TEST(FileLock, ManyShortWaitsAllEnd) {
  const TempDir dir;
  const base::UniqueFd held = open_file(dir.path("l"), O_RDWR | O_CREAT);
  ASSERT_TRUE(try_lock_file(held.get()));
  const base::UniqueFd waiter = open_file(dir.path("l"), O_RDWR);
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(lock_file(waiter.get(), base::Deadline::after(std::chrono::microseconds(i))),
              LockWait::kDeadline);
  }
}

TEST(FileLock, WaitLeavesTheSignalMaskAndNoSignalBehind) {
  const TempDir dir;
  const base::UniqueFd held = open_file(dir.path("l"), O_RDWR | O_CREAT);
  ASSERT_TRUE(try_lock_file(held.get()));
  const base::UniqueFd waiter = open_file(dir.path("l"), O_RDWR);
  sigset_t urgent;
  sigemptyset(&urgent);
  sigaddset(&urgent, SIGURG);
  sigset_t before;
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &urgent, &before), 0);
  EXPECT_EQ(lock_file(waiter.get(), base::Deadline::after(std::chrono::milliseconds(1))),
            LockWait::kDeadline);
  sigset_t now;
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, &before, &now), 0);
  EXPECT_EQ(sigismember(&now, SIGURG), 1);
  sigset_t pending;
  ASSERT_EQ(::sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGURG), 0);
}

TEST(FileLock, PassesToTheWaiterWhenTheHolderIsKilled) {
  const TempDir dir;
  Forked holder(flock_holder(dir.path("l")));
  ASSERT_EQ(holder.read(), 1U);
  const base::UniqueFd waiter = open_file(dir.path("l"), O_RDWR);
  std::thread killer([&] {
    const FileKey key = file_key(waiter.get());
    while (visible_file_locks(key).waiters.empty()) fo::test::pause_between_looks();
    holder.kill();
  });
  EXPECT_EQ(lock_file(waiter.get(), base::Deadline::after(kLong)), LockWait::kLocked);
  killer.join();
}

TEST(FileLock, IsSeenWithItsHolderAndWaiter) {
  const TempDir dir;
  Forked holder(flock_holder(dir.path("l")));
  ASSERT_EQ(holder.read(), 1U);
  const base::UniqueFd fd = open_file(dir.path("l"), O_RDONLY);
  const FileLocks locks = visible_file_locks(file_key(fd.get()));
  EXPECT_EQ(locks.holder, holder.pid());
  EXPECT_TRUE(is_file_locked(fd.get(), locks));
  // Not visible, as from another pid namespace; there a probe finds it.
  EXPECT_TRUE(locks.waiters.empty());
  holder.kill();
  EXPECT_FALSE(is_file_locked(fd.get(), visible_file_locks(file_key(fd.get()))));
}

TEST(FileLock, LookingLeavesItFree) {
  const TempDir dir;
  const base::UniqueFd fd = open_file(dir.path("l"), O_RDWR | O_CREAT);
  const base::UniqueFd looker = open_file(dir.path("l"), O_RDONLY);
  EXPECT_FALSE(is_file_locked(looker.get(), {}));
  EXPECT_TRUE(try_lock_file(fd.get()));
}

TEST(FileLock, OnAClosedDescriptorIsAnError) {
  EXPECT_EQ(fo::test::status_of([] { try_lock_file(-1); }), base::ExitStatus::kOsError);
}

}  // namespace
}  // namespace fo::os
