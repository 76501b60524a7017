// The lock that makes one engine of a pair the active one, whatever keeps it: a file
// (flock_lock.h), a lock server beside it (lockd_lock.h) or somebody across a network
// (lease_lock.h); or several of them at once (lock_set.h). It neither reads signals nor ends the
// process; that is for those who hold it.
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
#include "os/file_lock.h"

namespace fo::lock {

/// For how long what keeps a lock may be out of reach before it was ever reached.
inline constexpr base::Duration kFirstContact = std::chrono::seconds(12);

/// A lock that was granted.
struct Grant {
  std::string id;
  /// The fencing token: higher than that of every grant of this lock before.
  std::uint64_t generation = 0;
  std::chrono::system_clock::time_point granted_at;
  base::Duration waited{};
};

/// A lock that was held and is so no more.
struct Loss {
  base::ExitStatus status = base::ExitStatus::kProtocol;
  /// "the file was replaced".
  std::string reason;
  /// Another may be active from then on: what the lock protected must be gone.
  base::Deadline end_by = base::Deadline::never();
  /// For how long another may have been active, at most.
  base::Duration overlap{};
  /// False: whoever keeps the lock could not be asked, and may have given it to another at any time
  /// since it was last heard of.
  bool is_overlap_known = true;
};

/// Destroying it gives this process's share of the lock up. Single thread only.
class FailoverLock {
 public:
  FailoverLock(const FailoverLock&) = delete;
  FailoverLock& operator=(const FailoverLock&) = delete;
  virtual ~FailoverLock() = default;

  struct Result {
    os::LockWait outcome = os::LockWait::kDeadline;
    /// For kLocked.
    Grant grant;
    /// What holds it is not what the descriptor led to before: whoever inherited that has no part
    /// in the lock.
    bool is_new_file = false;
  };
  /// Waits for the lock, until `deadline` or until `interrupt_fd` is readable, and sees to it that
  /// the grant is recorded: one that can't be is none. `reminder` is called while it waits,
  /// possibly on another thread. Each backend says what it throws.
  virtual Result acquire(const base::Deadline& deadline, int interrupt_fd = -1,
                         const os::Reminder& reminder = {}) = 0;

  /// What a holder waits for: `fd` (-1: nothing) becoming ready for `events`, or `at`. Then check()
  /// is due.
  struct Watch {
    int fd = -1;
    short events = 0;
    base::Deadline at = base::Deadline::never();
  };
  [[nodiscard]] virtual Watch watch() = 0;
  /// Looks, without waiting, whether the lock that was granted is still held, and does what keeps
  /// it so. A loss is told each time from then on, as it is by then: there may be less time, and
  /// more overlap.
  virtual std::optional<Loss> check() = 0;
  /// False while check() can't tell: then it is no time to begin anything.
  [[nodiscard]] virtual bool is_confirmed() const = 0;

  /// Gives a lock that is held up on purpose, for every process that has its descriptor: they go on
  /// living, without what it protected. acquire() may be called anew. Throws kUnavailable when a
  /// server that can't be reached was not told, and it is held by whoever has the descriptor.
  virtual void release() = 0;

  /// The descriptors by which it is held; CLOEXEC. Whoever inherits them holds the lock as well.
  /// None for a lease, which this process alone holds.
  [[nodiscard]] virtual std::vector<int> fds() const = 0;

  /// For messages: the path that names the lock.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& id() const { return id_; }

 protected:
  /// Throws kConfig for an id that check_lock_id refuses.
  FailoverLock(std::string path, std::string id);

 private:
  std::string path_;
  std::string id_;
};

/// Whether what keeps a lock is only down or busy, and may come back; what else is wrong with it
/// will stay so.
bool is_transient(const base::Error& error);

/// What tells a process that inherits the lock's descriptors so: FAILOVER_LOCK_ID, and
/// FAILOVER_LOCK_FD where there is one (the first).
std::vector<std::pair<std::string, std::string>> inheritance_of(const FailoverLock& lock);

/// The lock that `uri` names. For a file, `fd` is the number of its descriptor; other kinds throw
/// kUsage for one. Nobody is connected to yet. Throws what the backend's constructor throws.
std::unique_ptr<FailoverLock> open_lock(const LockUri& uri, const std::string& id,
                                        std::optional<int> fd = std::nullopt);

/// The locks that `uris` name, as one (lock_set.h) where there are several. Throws kUsage for one
/// that is named twice, and for a file that two of them lead to.
std::unique_ptr<FailoverLock> open_locks(const std::vector<LockUri>& uris, const std::string& id,
                                         std::optional<int> fd = std::nullopt);

}  // namespace fo::lock
