// What a process started, directly or not: found, signalled and reaped by a child subreaper.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/units.h"
#include "os/process.h"

namespace fo::os {

/// The descendants of this process that have not been reaped, as /proc shows them; those that fork
/// meanwhile may be missed, so callers look again until nothing is left.
std::vector<pid_t> descendants();

/// Sends `signal` to every descendant, each known by a pidfd. Those that may not be signalled or
/// have ended are passed over. After SIGKILL, helps the kernel to take their memory back.
void signal_descendants(int signal);

/// The same where nothing may fail: whoever can't be signalled, or can't be found for want of a
/// descriptor, is left, with a warning. Callers do it again until nobody is.
void signal_left(int signal);
/// After how long: while processes that were sent KILL go away, new ones may still appear.
inline constexpr base::Duration kAgainAfter = std::chrono::milliseconds(20);

struct Reaped {
  /// A child that ended, or 0.
  pid_t pid = 0;
  WaitStatus status = 0;
  /// There is no child any more, alive or dead.
  bool none_left = false;
};
/// Reaps one dead child, whoever's orphan it was, without waiting.
Reaped reap_any();

}  // namespace fo::os
