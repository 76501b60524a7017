// Signals as data: blocked while the program runs, read from a descriptor, and restored before an
// exec.
#pragma once

#include <csignal>
#include <initializer_list>

#include "base/unique_fd.h"

namespace fo::os {

/// A set of signals.
sigset_t signal_set(std::initializer_list<int> signals);

/// Blocks `signals` in this thread (hence in all later threads), ignores SIGPIPE and resets SIGCHLD
/// to its default. The first call saves the previous state for restore_signals. Call it before
/// there are threads or children.
void block_signals(const sigset_t& signals);

/// The signals that ask a daemon to end: SIGTERM, SIGINT, SIGHUP and SIGQUIT.
sigset_t ending_signals();
/// Blocks ending_signals(), and opens a signalfd for them.
base::UniqueFd open_ending_signals();

/// Restores the mask and the dispositions that block_signals saved. Async-signal-safe, for use
/// between fork and exec. Does nothing if nothing was blocked.
void restore_signals() noexcept;

/// Every signal that ends a process by default and is sent on purpose: without SIGKILL, SIGPIPE and
/// the signals of faults, and without those that this process ignores, as under nohup(1). Call it
/// before block_signals.
sigset_t terminating_signals();

/// The signals that a supervisor forwards: terminating_signals() and SIGCONT, SIGURG, SIGWINCH.
sigset_t forwardable_signals();

/// Ends this process by `signal`, without a core dump. Pid 1 cannot die by a signal: then it
/// returns the exit status 128 + signal.
int die_of_signal(int signal);

/// A non-blocking CLOEXEC signalfd for `signals`, which must be blocked.
base::UniqueFd open_signal_fd(const sigset_t& signals);

/// The next pending signal's number from a signalfd; 0 when there is none.
int read_signal(int signal_fd);

}  // namespace fo::os
