// Signals as data: blocked while we run, read from a descriptor, given back as found before an
// exec.
#pragma once

#include <csignal>
#include <initializer_list>

#include "base/unique_fd.h"

namespace fo::os {

/// A set of signals.
sigset_t signal_set(std::initializer_list<int> signals);

/// Blocks `signals` in this thread (hence in all threads made later), ignores SIGPIPE and gives
/// SIGCHLD its default. What was in force at the first call is remembered for restore_signals. Call
/// before any thread exists, and before any child.
void block_signals(const sigset_t& signals);

/// Puts back the mask and the dispositions that block_signals found. Async-signal-safe, so
/// fit for the moment between fork and exec; does nothing when nothing was blocked.
void restore_signals() noexcept;

/// Every signal that would end a process by default and that others send on purpose: not SIGKILL,
/// not SIGPIPE, not those that a fault raises. Without those that this process ignores, as nohup(1)
/// has it. To be called before block_signals.
sigset_t terminating_signals();

/// What a supervisor passes on: terminating_signals() and SIGCONT, SIGURG, SIGWINCH.
sigset_t forwardable_signals();

/// Ends this process as `signal` would have done by default, without a core dump. Pid 1 can't die
/// that way: then this returns 128 + signal, the status to exit with.
int die_of_signal(int signal);

/// A non-blocking CLOEXEC signalfd for `signals`, which must be blocked.
base::UniqueFd open_signal_fd(const sigset_t& signals);

/// The next pending signal's number from a signalfd; 0 when there is none.
int read_signal(int signal_fd);

}  // namespace fo::os
