#include "os/terminal.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace fo::os {

TerminalLoan::TerminalLoan(pid_t group) : group_(group) {
  terminal_ = ::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
  if (terminal_ < 0) return;
  if (::tcgetpgrp(terminal_) == ::getpgrp()) {
    lend();
  } else {
    ::close(terminal_);
    terminal_ = -1;
  }
}

TerminalLoan::~TerminalLoan() {
  if (terminal_ < 0) return;
  ::tcsetpgrp(terminal_, ::getpgrp());
  ::close(terminal_);
}

void TerminalLoan::lend() const {
  ::tcsetpgrp(terminal_, group_);
  // The command may have read from the terminal before it was in the foreground, and been stopped.
  ::kill(-group_, SIGCONT);
}

void TerminalLoan::follow_stop() const {
  if (terminal_ < 0) return;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(group_), &info, WSTOPPED | WNOHANG) != 0) return;
  if (info.si_pid == 0 || ::tcgetpgrp(terminal_) != group_) return;
  ::tcsetpgrp(terminal_, ::getpgrp());
  ::raise(SIGSTOP);
  lend();
}

}  // namespace fo::os
