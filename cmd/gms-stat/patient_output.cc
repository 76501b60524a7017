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

// A description of our own of a pipe or a terminal: O_NONBLOCK on the one that we were given would
// be everybody's who has it. Nothing where that is not to be had, as of another user's terminal.
base::UniqueFd reopen_stdout() {
  struct stat about {};
  if (::fstat(STDOUT_FILENO, &about) != 0) return {};
  if (!S_ISFIFO(about.st_mode) && ::isatty(STDOUT_FILENO) != 1) return {};
  return base::UniqueFd(::open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

}  // namespace

PatientOutput::PatientOutput() : own_(reopen_stdout()), fd_(own_ ? own_.get() : STDOUT_FILENO) {}

std::size_t PatientOutput::write(std::string_view text) const {
  // A pipe or a socket with room has room for so much: that does not block either.
  const std::size_t size = std::min<std::size_t>(text.size(), PIPE_BUF);
  const ssize_t written = ::write(fd_, text.data(), size);
  if (written >= 0) return static_cast<std::size_t>(written);
  if (errno == EAGAIN || errno == EINTR) return 0;
  base::throw_errno(errno, base::ExitStatus::kIoError, "write to standard output");
}

}  // namespace fo::gms_stat
