// flock(2) on a descriptor: waiting for it without polling while timers and signals keep working,
// and seeing who has it without taking part. Not a lock with a record: that is lock::FailoverLock.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"

namespace fo::os {

/// Takes the exclusive lock for the open file description of `fd` if it is free now. Throws
/// Error(kOsError).
bool try_lock_file(int fd);

/// The same of what `fd` was opened as, `name` in `folder` (AT_FDCWD: of open(2)): false, too,
/// where it isn't there any more. Whoever removes or moves it has the lock meanwhile.
bool try_lock_entry(int folder, const char* name, int fd);

enum class LockWait { kLocked, kDeadline, kInterrupted };

/// Something to do every so often while a lock is waited for.
struct Reminder {
  /// Zero: never.
  base::Duration every{};
  /// Must not throw.
  std::function<void()> remind = {};
  /// When it is due, from now.
  [[nodiscard]] base::Deadline next() const {
    return every > base::Duration::zero() ? base::Deadline::after(every) : base::Deadline::never();
  }
};

/// Waits for the exclusive lock of one description, blocked in flock(2) in the thread that asks, so
/// that a hand-over costs one wake-up. A thread beside it keeps the time and the interruption.
/// For one thread, and one wait.
class LockWaiter {
 public:
  /// `fd` stays the caller's.
  explicit LockWaiter(int fd) : fd_(fd) {}
  LockWaiter(const LockWaiter&) = delete;
  LockWaiter& operator=(const LockWaiter&) = delete;
  /// Waits until the thread beside has ended, which it is about to.
  ~LockWaiter();

  /// Waits until `deadline` or until `interrupt_fd` (where >= 0) is readable; it is not read. A
  /// lock that came together with the interruption is kLocked. Throws Error(kOsError). SIGURG gets
  /// a handler that does nothing, for good, and is unblocked in this thread while this object
  /// lives: by it the thread is called back. `reminder` is called on the thread beside.
  LockWait wait(const base::Deadline& deadline, int interrupt_fd = -1,
                const Reminder& reminder = {});

 private:
  LockWait block();
  void start_watcher();
  void watch() noexcept;

  int fd_;
  base::Deadline deadline_ = base::Deadline::never();
  int interrupt_fd_ = -1;
  Reminder reminder_;
  pthread_t waiter_{};
  pthread_t watcher_{};
  bool watched_ = false;
  sigset_t mask_before_{};
  base::UniqueFd done_;
  std::atomic<bool> called_back_ = false;
  LockWait reason_ = LockWait::kDeadline;
};

/// A file as /proc/locks names it.
struct FileKey {
  std::uint64_t major = 0;
  std::uint64_t minor = 0;
  std::uint64_t inode = 0;
  friend bool operator==(const FileKey&, const FileKey&) = default;
};

/// Of an open file: the superblock's device, which fstat(2) does not tell on btrfs or overlayfs.
/// Throws Error(kOsError).
FileKey file_key(int fd);

/// Who has a file's exclusive flock and who waits for it, as far as /proc/locks shows it: only
/// processes of this pid namespace. A holder is the process that took the lock; it may have ended
/// and left the lock to those that inherited it.
struct FileLocks {
  std::optional<pid_t> holder;
  std::vector<pid_t> waiters;
};

/// Reads the text of /proc/locks; what is not in its format is passed over.
FileLocks parse_file_locks(std::string_view text, const FileKey& key);

/// parse_file_locks of /proc/locks now; nothing where that can't be read.
FileLocks visible_file_locks(const FileKey& key);

/// True when that process's descriptor leads to a description that has the exclusive lock; false
/// where it is not to be seen.
bool holds_file_lock(pid_t pid, int fd);

/// True when somebody has the exclusive lock, in whatever pid namespace. `fd` is the caller's own
/// description and holds no lock. Where /proc/locks can't tell, a shared lock is taken for an
/// instant, which a non-blocking contender would see as busy. Throws Error(kOsError).
bool is_file_locked(int fd, const FileLocks& visible);

}  // namespace fo::os
