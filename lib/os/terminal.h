// The terminal of an interactive command that runs in a process group of its own: lent to it, so
// that it may read and gets the keyboard's signals, and taken back.
#pragma once

#include <sys/types.h>

namespace fo::os {

/// Makes `group`, which this process just started, the foreground of the controlling terminal, if
/// this process is that now; else it does nothing at all. SIGTTOU must be blocked.
class TerminalLoan {
 public:
  explicit TerminalLoan(pid_t group);
  TerminalLoan(const TerminalLoan&) = delete;
  TerminalLoan& operator=(const TerminalLoan&) = delete;
  /// Takes the terminal back.
  ~TerminalLoan();

  /// When the group's leader was stopped from the keyboard: stops this process as well, so that the
  /// shell notices, and goes on with both when that is continued.
  void follow_stop() const;

 private:
  void lend() const;

  int terminal_ = -1;
  pid_t group_;
};

}  // namespace fo::os
