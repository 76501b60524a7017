// The lock that makes one engine of a pair the active one, whatever the lock service: a file
// (flock_lock.h), a local lock server (lockd_lock.h), a service across a network (lease_lock.h), or
// several of them at once (lock_set.h). It neither reads signals nor ends the process; its holders
// do.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/exit_status.h"
#include "lock/lock_uri.h"
#include "os/file/file_lock.h"

namespace fo::lock {

/// Time for which a lock service may be unreachable before the first contact.
inline constexpr base::Duration kFirstContact = std::chrono::seconds(12);

/// A lock that was granted.
struct Grant {
  std::string id;
  /// The fencing token: higher than that of every earlier grant of this lock.
  std::uint64_t generation = 0;
  std::chrono::system_clock::time_point granted_at;
  base::Duration waited{};
};

/// A lock that was held and is lost.
struct Loss {
  base::ExitStatus status = base::ExitStatus::kProtocol;
  /// "the file was replaced".
  std::string reason;
  /// From then on another process may be active: what the lock protects must have ended.
  base::Deadline end_by = base::Deadline::never();
  /// The maximum time for which another process may have been active already.
  base::Duration overlap{};
  /// False if the lock service could not be queried: it may have granted the lock to another
  /// process at any time since the last contact.
  bool is_overlap_known = true;
};

/// The destructor releases this process's share of the lock. Single thread only.
class FailoverLock {
 public:
  FailoverLock(const FailoverLock&) = delete;
  FailoverLock& operator=(const FailoverLock&) = delete;
  virtual ~FailoverLock() = default;

  struct Result {
    os::LockWait outcome = os::LockWait::kDeadline;
    /// For kLocked.
    Grant grant;
    /// The lock file was replaced during the wait and opened again, so processes that inherited the
    /// descriptor before do not hold the lock.
    bool is_new_file = false;
  };
  /// Waits for the lock until `deadline` or until `interrupt_fd` is readable, and records the
  /// grant; a grant that cannot be recorded does not count. `reminder` is called during the wait,
  /// possibly on another thread. Each implementation documents its errors.
  virtual Result acquire(const base::Deadline& deadline, int interrupt_fd = -1,
                         const os::Reminder& reminder = {}) = 0;

  /// The event that a holder waits for: that `fd` (-1: none) is ready for `events`, or the time
  /// `at`. Then it calls check().
  struct Watch {
    int fd = -1;
    short events = 0;
    base::Deadline at = base::Deadline::never();
  };
  [[nodiscard]] virtual Watch watch() = 0;
  /// Checks, without waiting, whether the granted lock is still held, and does what is needed to
  /// keep it. After a loss, every call returns it with the current values: the time decreases and
  /// the overlap grows.
  virtual std::optional<Loss> check() = 0;
  /// False if check() cannot tell; then nothing should be started.
  [[nodiscard]] virtual bool is_confirmed() const = 0;

  /// Releases a held lock for every process with its descriptor; the processes continue. acquire()
  /// may be called again. Throws kUnavailable if a server could not be informed; then the processes
  /// with the descriptor still hold the lock.
  virtual void release() = 0;

  /// The CLOEXEC descriptors that hold the lock; processes that inherit them hold it, too. Empty
  /// for a lease, which only this process holds.
  [[nodiscard]] virtual std::vector<int> fds() const = 0;

  /// The path that names the lock, for messages.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& id() const { return id_; }

 protected:
  /// Throws kConfig for an id that check_lock_id refuses.
  FailoverLock(std::string path, std::string id);

 private:
  std::string path_;
  std::string id_;
};

/// The variables for a process that inherits the lock's descriptors: FAILOVER_LOCK_ID, and
/// FAILOVER_LOCK_FD if there is a descriptor (the first).
std::vector<std::pair<std::string, std::string>> inheritance_of(const FailoverLock& lock);

/// The lock for `uri`, not connected yet. For a file, `fd` is the number of its descriptor; other
/// kinds throw kUsage for one. Throws what the implementation's constructor throws.
std::unique_ptr<FailoverLock> open_lock(const LockUri& uri, const std::string& id,
                                        std::optional<int> fd = std::nullopt);

/// The locks for `uris`, combined (lock_set.h) if there are several. Throws kUsage for a duplicate,
/// and for two paths of one file.
std::unique_ptr<FailoverLock> open_locks(const std::vector<LockUri>& uris, const std::string& id,
                                         std::optional<int> fd = std::nullopt);

}  // namespace fo::lock
