// Runs a command while a lock is held, and ends it with all its processes if the lock is lost.
#pragma once

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "lock/failover_lock.h"
#include "lock/status_events.h"

namespace fo::lock {

struct SuperviseOptions {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;
  /// The time from SIGTERM to SIGKILL.
  base::Duration grace{};
};

/// Runs the command in its own process group with the lock's descriptor, and forwards
/// os::forwardable_signals(), which it blocks. Returns the command's status, or 128+n, when every
/// descendant of this process has ended: those that outlive the command get SIGTERM and, after the
/// grace time, SIGKILL. If the lock is lost, all of them are ended in the same way, or at once by
/// SIGKILL if another process may be active already, and the loss's status is returned. This
/// process becomes a child subreaper; if it is killed, the command gets SIGKILL. Single thread
/// only. Throws kNotFound, kCannotRun.
int supervise(FailoverLock& lock, const SuperviseOptions& options, StatusEvents& events);

}  // namespace fo::lock
