// `gms-lock acquire`: waits for the lock, then execs or supervises a command, or just holds the
// lock.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "base/strong.h"
#include "base/units.h"
#include "lock/failover_lock.h"

namespace fo::lock {

struct AcquireOptions {
  /// One lock, or several to hold together, acquired in this order.
  std::vector<LockUri> locks;
  std::string id;
  /// For the lock and the device memory together; nullopt: no limit.
  std::optional<base::Duration> timeout;
  /// After a grant, wait until the device has this much memory free.
  std::optional<base::ByteCount> gpu_free;
  base::DeviceOrdinal device;
  /// The interval of log lines about a changed holder during the wait. Zero: none.
  base::Duration warn_after = std::chrono::seconds(30);
  /// The exit status if the lock was not granted in time.
  int busy_status = base::to_int(base::ExitStatus::kTryAgain);
  /// Exec the command instead of supervising it. Only for a flock: other locks need a process that
  /// keeps them.
  bool exec = false;
  std::optional<int> fd;
  base::Duration grace = std::chrono::seconds(5);
  int status_fd = -1;
  /// Empty: hold the lock until stdin ends or a signal arrives.
  std::vector<std::string> command;
};

/// The result: an exit status, or a signal that arrived during the wait and should end the caller
/// (os::die_of_signal).
struct AcquireEnd {
  int status = 0;
  int signal = 0;
};

/// Blocks signals; single thread only. Without a command, `on_held` is called with the grant.
/// Throws what open_lock, FailoverLock and device::GpuGate throw, and kNotFound or kCannotRun for the
/// command.
AcquireEnd acquire(const AcquireOptions& options, const std::function<void(const Grant&)>& on_held);

/// One JSON object: id, generation, granted_at, waited (seconds).
std::string to_json(const Grant& grant);
/// The same as "key: value" lines.
std::string to_text(const Grant& grant);

}  // namespace fo::lock
