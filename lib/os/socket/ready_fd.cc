#include "os/socket/ready_fd.h"

#include <fcntl.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "os/file/file.h"

namespace fo::os {

ReadyFd::ReadyFd(int fd) {
  if (fd >= 0 && ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    base::throw_errno(errno, base::ExitStatus::kUsage, "use --ready-fd " + std::to_string(fd));
  }
  fd_.reset(fd);
}

void ReadyFd::announce(std::string_view line) {
  if (fd_) write_all(fd_.get(), line, "write to the ready descriptor");
  fd_.reset();
}

}  // namespace fo::os
