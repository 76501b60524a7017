#include "os/socket/status_fd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>

#include "base/error.h"

namespace fo::os {
namespace {

template <typename Clock>
double seconds_of() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

}  // namespace

double monotonic_seconds() { return seconds_of<std::chrono::steady_clock>(); }

double wall_seconds() { return seconds_of<std::chrono::system_clock>(); }

StatusFd::StatusFd(int fd) : fd_(fd) {
  if (fd_ >= 0 && ::fcntl(fd_, F_SETFD, FD_CLOEXEC) != 0) {
    base::throw_errno(errno, base::ExitStatus::kUsage, "use --status-fd " + std::to_string(fd_));
  }
}

void StatusFd::write(std::string_view event, std::string_view members) const {
  if (!wanted()) return;
  write_line(fmt::format(R"({{"event":"{}","time":{:.6f},"monotonic":{:.6f}{}{}}})", event,
                         wall_seconds(), monotonic_seconds(), members.empty() ? "" : ",", members));
}

void StatusFd::write_line(std::string_view json) const {
  if (!wanted()) return;
  pollfd ready{fd_, POLLOUT, 0};
  if (::poll(&ready, 1, 0) <= 0 || (ready.revents & POLLOUT) == 0) return;
  const std::string line = std::string(json) + "\n";
  // A longer line could block, or be split.
  if (line.size() > PIPE_BUF) return;
  [[maybe_unused]] const ssize_t put = ::write(fd_, line.data(), line.size());
}

}  // namespace fo::os
