// A failover lock on a file: flock(2) for exclusion, the holder's id in the file, the generation in
// a record beside it. The lock belongs to the open file description, so it is held until the last
// process that inherited that is gone.
#pragma once

#include <optional>
#include <string>

#include "base/boot_clock.h"
#include "base/unique_fd.h"
#include "lock/failover_lock.h"
#include "lock/flock/path_watch.h"
#include "lock/grant.h"

namespace fo::lock {

/// The longest time for which a replaced lock file may go unnoticed.
inline constexpr base::Duration kPathCheckInterval = std::chrono::seconds(1);

class FlockLock final : public FailoverLock {
 public:
  /// Opens the lock file and its record, creating them and reserving their space, and locks
  /// nothing: so that the descriptor is numbered lower than what the engine opens later, and is
  /// the last that its death releases. `fd` is the number to have, or the lowest free from 3 on.
  /// Throws kConfig for the id and for a lock that this process has on a descriptor that it
  /// inherited, for which it would wait until its own end; kUsage for `fd` (in use, below 3, or
  /// over the limit), kNotPermitted, kCannotCreate.
  FlockLock(std::string path, std::string id, std::optional<int> fd = std::nullopt);
  /// The lock first: the end of the watch takes the kernel up to 20 ms.
  ~FlockLock() override { fd_.reset(); }

  /// A lock file that was replaced while it waited is opened anew, under the same number. Throws
  /// kConfig when the record names a live process on another file at this path: somebody replaced
  /// it and there would be two holders. Throws kIoError and others when the grant can't be
  /// recorded; the lock is free again then.
  Result acquire(const base::Deadline& deadline, int interrupt_fd = -1,
                 const os::Reminder& reminder = {}) override;

  [[nodiscard]] Watch watch() override;
  /// Lost when the path no longer leads to the file that is open here.
  std::optional<Loss> check() override;
  [[nodiscard]] bool is_confirmed() const override { return true; }
  void release() override;
  [[nodiscard]] std::vector<int> fds() const override { return {fd_.get()}; }

 private:
  [[nodiscard]] std::string record_path() const { return path() + ".grant"; }
  [[nodiscard]] bool is_replaced() const;
  void reopen();
  void open_record();
  // Finds out before the wait what needs no lock to be known.
  void prepare();
  [[nodiscard]] std::string read_record() const;
  // With the record locked.
  Grant record_grant(base::Duration waited);

  base::UniqueFd fd_;
  base::UniqueFd record_fd_;
  GrantRecord record_;
  // The record before the wait.
  std::string before_bytes_;
  GrantContent before_;
  std::optional<PathWatch> path_watch_;
  // When the path last led to the file that is open here.
  base::BootClock::time_point seen_at_;
};

}  // namespace fo::lock
