#include "lock/path_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>

namespace fo::lock {

PathWatch::PathWatch(const std::string& path) : fd_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  constexpr std::uint32_t kEvents = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                                    IN_MOVE_SELF | IN_DELETE_SELF | IN_ONLYDIR;
  if (fd_ && ::inotify_add_watch(fd_.get(), folder.c_str(), kEvents) < 0) fd_.reset();
}

void PathWatch::drain() const {
  std::array<char, 4096> events{};
  while (fd_ && ::read(fd_.get(), events.data(), events.size()) > 0) {
  }
}

}  // namespace fo::lock
