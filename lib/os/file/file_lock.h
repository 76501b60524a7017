// flock(2) on a descriptor: waits for it without polling while timers and signals keep working, and
// finds its holder without taking it. For a lock with a grant record, see lock::FailoverLock.
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

/// Takes the exclusive lock of `fd`'s open file description if it is free. Throws Error(kOsError).
bool try_lock_file(int fd);

/// The same, but also false if `name` in `folder` (AT_FDCWD: as for open(2)) is no longer the file
/// that `fd` was opened as. A process that removes or moves the file holds the lock meanwhile.
bool try_lock_entry(int folder, const char* name, int fd);

enum class LockWait { kLocked, kDeadline, kInterrupted };

/// A periodic callback while a lock is waited for.
struct Reminder {
  /// Zero: never.
  base::Duration every{};
  /// Must not throw.
  std::function<void()> remind = {};
  /// The time of the next call, from now.
  [[nodiscard]] base::Deadline next() const {
    return every > base::Duration::zero() ? base::Deadline::after(every) : base::Deadline::never();
  }
};

/// Waits for the exclusive lock of one description in flock(2), in the calling thread, so that a
/// handover costs one wake-up. A second thread watches the deadline and the interruption. For one
/// thread, and one wait.
class LockWaiter {
 public:
  /// The caller keeps `fd`.
  explicit LockWaiter(int fd) : fd_(fd) {}
  LockWaiter(const LockWaiter&) = delete;
  LockWaiter& operator=(const LockWaiter&) = delete;
  /// Waits for the second thread, which is about to end.
  ~LockWaiter();

  /// Waits until `deadline` or until `interrupt_fd` (if >= 0) is readable; it is not read. If the
  /// lock and the interruption arrive together, the result is kLocked. Throws Error(kOsError).
  /// SIGURG gets an empty handler permanently, and is unblocked in this thread while this object
  /// lives: the second thread uses it to interrupt flock. `reminder` is called on the second
  /// thread.
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

/// Returns the key of an open file, with the device of its superblock, which fstat(2) does not
/// return on btrfs or overlayfs. Throws Error(kOsError).
FileKey file_key(int fd);

/// The holder of a file's exclusive flock and the waiters, as /proc/locks shows them: only
/// processes of this pid namespace. The holder is the process that took the lock; it may have ended
/// and left the lock to processes that inherited it.
struct FileLocks {
  std::optional<pid_t> holder;
  std::vector<pid_t> waiters;
};

/// Parses the text of /proc/locks; lines in another format are skipped.
FileLocks parse_file_locks(std::string_view text, const FileKey& key);

/// parse_file_locks of /proc/locks now; empty if it cannot be read.
FileLocks visible_file_locks(const FileKey& key);

/// Whether that descriptor of process `pid` refers to a description with the exclusive lock; false
/// if it is not visible.
bool holds_file_lock(pid_t pid, int fd);

/// Whether any process of any pid namespace has the exclusive lock. `fd` is the caller's own
/// description without a lock. If /proc/locks cannot tell, it takes a shared lock for an instant,
/// which a non-blocking contender would see as busy. Throws Error(kOsError).
bool is_file_locked(int fd, const FileLocks& visible);

}  // namespace fo::os
