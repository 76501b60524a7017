// The holder's part after the grant: a command that lives and dies with the lock.
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
  /// Between TERM and KILL for what has to go.
  base::Duration grace{};
};

/// Runs the command in a process group of its own, with the lock's descriptor; passes on
/// os::forwardable_signals(), which it blocks; returns the command's status, or 128+n, when every
/// descendant of this process has ended: those that outlive the command get TERM and, after the
/// grace, KILL. A lock that is lost ends all of them in the same way, at once by KILL where another
/// may be active already, and the loss's status is returned. This process becomes a child
/// subreaper; if it is killed, the command gets SIGKILL. Single thread only. Throws kNotFound,
/// kCannotRun.
int supervise(FailoverLock& lock, const SuperviseOptions& options, StatusEvents& events);

}  // namespace fo::lock
