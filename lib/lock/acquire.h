// `gms-lock acquire`: wait for the lock, then become a command, supervise one, or just hold on.
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
  /// One, or several to hold together, taken in this order.
  std::vector<LockUri> locks;
  std::string id;
  /// nullopt: for ever. For the lock and the device memory together.
  std::optional<base::Duration> timeout;
  /// After a grant, wait until the device has this much memory free.
  std::optional<base::ByteCount> gpu_free;
  int device = 0;
  /// While it waits, say this often who holds the lock, when that has changed. Zero: never.
  base::Duration warn_after = std::chrono::seconds(30);
  /// What to return when the lock was not granted in time.
  int busy_status = base::to_int(base::ExitStatus::kTryAgain);
  /// Become the command; otherwise supervise it. For a flock only: nobody would be left to keep
  /// any other lock.
  bool exec = false;
  std::optional<int> fd;
  base::Duration grace = std::chrono::seconds(5);
  int status_fd = -1;
  /// Empty: hold the lock until stdin ends or a signal comes.
  std::vector<std::string> command;
};

/// How it ended: with a status, or because of a signal while it waited, by which the caller should
/// die (os::die_of_signal).
struct AcquireEnd {
  int status = 0;
  int signal = 0;
};

/// Blocks signals; single thread only. `on_held` is told of the grant where there is no command.
/// Throws what open_lock, FailoverLock and GpuGate throw, and kNotFound or kCannotRun for the
/// command.
AcquireEnd acquire(const AcquireOptions& options, const std::function<void(const Grant&)>& on_held);

/// One JSON object: id, generation, granted_at, waited (seconds).
std::string to_json(const Grant& grant);
/// The same as "key: value" lines.
std::string to_text(const Grant& grant);

}  // namespace fo::lock
