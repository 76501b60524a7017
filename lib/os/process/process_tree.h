// Descendants of this process: found, signalled and reaped by a child subreaper.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/units.h"
#include "os/process/process.h"

namespace fo::os {

/// The descendants of this process that have not been reaped, as /proc shows them. A process that
/// forks meanwhile may be missed, so callers repeat the call until nothing is left.
std::vector<pid_t> descendants();

/// Sends `signal` to every descendant, each by a pidfd. Processes that have ended or may not be
/// signalled are skipped. After SIGKILL, helps the kernel to free their memory. Throws
/// Error(kOsError) unless three descriptors are free.
void signal_descendants(int signal);

/// The same without exceptions: a failure is logged as a warning. Callers repeat it until no
/// process is left.
void signal_left(int signal);
/// The interval of repeated signals: new processes may appear until the killed ones have ended.
inline constexpr base::Duration kAgainAfter = std::chrono::milliseconds(20);

struct Reaped {
  /// The child that ended, or 0.
  pid_t pid = 0;
  WaitStatus status = 0;
  /// There is no child left, running or ended.
  bool none_left = false;
};
/// Reaps one ended child, including adopted orphans, without waiting.
Reaped reap_any();

}  // namespace fo::os
