// The descriptors that a program started now would inherit.
#pragma once

#include <fcntl.h>

#include <filesystem>
#include <set>
#include <string>

namespace fo::test {

inline std::set<int> inherited_fds() {
  std::set<int> fds;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) fds.insert(fd);
  }
  return fds;
}

}  // namespace fo::test
