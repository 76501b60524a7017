// A failover lock on a file: flock(2) for exclusion, the holder's id in the file, and the
// generation in a record beside it. The lock belongs to the open file description, so it is held
// until the last process that inherited it has ended.
#pragma once

#include <optional>
#include <string>

#include "base/boot_clock.h"
#include "base/unique_fd.h"
#include "lock/failover_lock.h"
#include "lock/flock/path_watch.h"
#include "lock/grant.h"

namespace fo::lock {

/// The maximum time until a replaced lock file is noticed.
inline constexpr base::Duration kPathCheckInterval = std::chrono::seconds(1);

class FlockLock final : public FailoverLock {
 public:
  /// Opens the lock file and its record without locking, creates them if they are missing, and
  /// reserves their space. Thus the descriptor has a lower number than those that the engine opens
  /// later, and is the last one released when the engine dies. `fd` is the number to use, by
  /// default the lowest free one from 3 on. Throws kConfig for the id and for a lock that this
  /// process already holds through an inherited descriptor; kUsage for `fd` (in use, below 3, or
  /// over the limit), kNotPermitted, kCannotCreate.
  FlockLock(std::string path, std::string id, std::optional<int> fd = std::nullopt);
  /// The lock is released first, because closing the watch takes the kernel up to 20 ms.
  ~FlockLock() override { fd_.reset(); }

  /// A lock file that was replaced during the wait is opened again under the same number. Throws
  /// kConfig if the record names a live process with another file of this path: the file was
  /// replaced, and there would be two holders. Throws kIoError and others if the grant cannot be
  /// recorded; then the lock is free again.
  Result acquire(const base::Deadline& deadline, int interrupt_fd = -1,
                 const os::Reminder& reminder = {}) override;

  [[nodiscard]] Watch watch() override;
  /// The lock is lost if the path no longer refers to the open file.
  std::optional<Loss> check() override;
  [[nodiscard]] bool is_confirmed() const override { return true; }
  void release() override;
  [[nodiscard]] std::vector<int> fds() const override { return {fd_.get()}; }

 private:
  [[nodiscard]] std::string record_path() const { return path() + ".grant"; }
  [[nodiscard]] bool is_replaced() const;
  void reopen();
  void open_record();
  // Does the work before the wait that does not need the lock.
  void prepare();
  [[nodiscard]] std::string read_record() const;
  // Requires the lock on the record.
  Grant record_grant(base::Duration waited);

  base::UniqueFd fd_;
  base::UniqueFd record_fd_;
  GrantRecord record_;
  // The record before the wait.
  std::string before_bytes_;
  GrantContent before_;
  std::optional<PathWatch> path_watch_;
  // When the path last referred to the open file.
  base::BootClock::time_point seen_at_;
};

}  // namespace fo::lock
