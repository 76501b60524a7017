// The lock that makes one engine of a pair the active one, on a file: flock(2) for exclusion, the
// holder's id in the file, the generation in a record beside it (spec: lock file). It neither reads
// signals nor ends the process; that is for those who hold it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "lock/grant.h"
#include "os/file_lock.h"

namespace fo::lock {

/// A lock that was granted.
struct Grant {
  std::string id;
  /// The fencing token: higher than that of every grant of this lock before.
  std::uint64_t generation = 0;
  std::chrono::system_clock::time_point granted_at;
  base::Duration waited{};
};

class FailoverLock {
 public:
  /// Opens the lock file and its record, creating them and reserving their space, and locks
  /// nothing: so that the descriptor is numbered lower than what the engine opens later, and is
  /// the last that its death releases. `fd` is the number to have, or the lowest free from 3 on.
  /// Throws kConfig for the id, kUsage for `fd` (in use, below 3, or over the limit),
  /// kNotPermitted, kCannotCreate.
  FailoverLock(std::string path, std::string id, std::optional<int> fd = std::nullopt);

  struct Result {
    os::LockWait outcome = os::LockWait::kDeadline;
    /// For kLocked.
    Grant grant;
  };
  /// Waits for the lock, until `deadline` or until `interrupt_fd` is readable, and records the
  /// grant. A lock file that was replaced while it waited is opened anew, under the same number.
  /// Throws kConfig when the record names a live process on another file at this path: somebody
  /// replaced it and there would be two holders. Throws kIoError and others when the grant can't be
  /// recorded; the lock is free again then.
  Result acquire(const base::Deadline& deadline, int interrupt_fd = -1);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& id() const { return id_; }
  /// Of the description that holds the lock; CLOEXEC. Whoever inherits it holds the lock as well.
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// True when the path no longer leads to the file that is open here: a holder has lost the lock
  /// then.
  [[nodiscard]] bool is_replaced() const;

 private:
  void reopen();
  void open_record();
  // Finds out before the wait what needs no lock to be known.
  void prepare();
  Grant record_grant(base::Duration waited);

  std::string path_;
  std::string id_;
  base::UniqueFd fd_;
  base::UniqueFd record_fd_;
  GrantRecord record_;
};

}  // namespace fo::lock
