// Signals as data: blocked while we run, read from a descriptor, given back as found before an
// exec.
#pragma once

#include <csignal>
#include <initializer_list>

#include "base/unique_fd.h"

namespace fo::os {

/// A set of signals.
sigset_t signal_set(std::initializer_list<int> signals);

/// Blocks `signals` in this thread (hence in all threads made later) and ignores SIGPIPE. What was
/// in force at the first call is remembered for restore_signals. Call before any thread exists.
void block_signals(const sigset_t& signals);

/// Puts back the mask and the SIGPIPE disposition that block_signals found. Async-signal-safe, so
/// fit for the moment between fork and exec; does nothing when nothing was blocked.
void restore_signals() noexcept;

/// A non-blocking CLOEXEC signalfd for `signals`, which must be blocked.
base::UniqueFd open_signal_fd(const sigset_t& signals);

/// The next pending signal's number from a signalfd; 0 when there is none.
int read_signal(int signal_fd);

}  // namespace fo::os
