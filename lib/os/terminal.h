// Lends the terminal to an interactive command in its own process group, so that it can read and
// gets the keyboard's signals, and takes it back.
#pragma once

#include <sys/types.h>

namespace fo::os {

/// Makes `group`, which this process just started, the foreground group of the controlling terminal
/// if this process is in the foreground; otherwise does nothing. SIGTTOU must be blocked.
class TerminalLoan {
 public:
  explicit TerminalLoan(pid_t group);
  TerminalLoan(const TerminalLoan&) = delete;
  TerminalLoan& operator=(const TerminalLoan&) = delete;
  /// Takes the terminal back.
  ~TerminalLoan();

  /// If the keyboard stopped the group's leader: stops this process as well, so that the shell
  /// notices, and continues both when it is continued.
  void follow_stop() const;

 private:
  void lend() const;

  int terminal_ = -1;
  pid_t group_;
};

}  // namespace fo::os
