#include "patient_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/error.h"

namespace fo::gms_stat {
namespace {

// Opens another file description of stdout if it is a pipe or a terminal, because O_NONBLOCK on the
// inherited one would affect all processes that share it. Empty if that is impossible, for example
// for another user's terminal.
base::UniqueFd reopen_stdout() {
  struct stat about {};
  if (::fstat(STDOUT_FILENO, &about) != 0) return {};
  if (!S_ISFIFO(about.st_mode) && ::isatty(STDOUT_FILENO) != 1) return {};
  return base::UniqueFd(::open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

}  // namespace

PatientOutput::PatientOutput() : own_(reopen_stdout()), fd_(own_ ? own_.get() : STDOUT_FILENO) {}

std::size_t PatientOutput::write(std::string_view text) const {
  // A writable pipe or socket accepts this many bytes without blocking.
  const std::size_t size = std::min<std::size_t>(text.size(), PIPE_BUF);
  const ssize_t written = ::write(fd_, text.data(), size);
  if (written >= 0) return static_cast<std::size_t>(written);
  if (errno == EAGAIN || errno == EINTR) return 0;
  base::throw_errno(errno, base::ExitStatus::kIoError, "write to standard output");
}

}  // namespace fo::gms_stat
