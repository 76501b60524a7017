#include "lock/flock/path_watch.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace fo::lock {
namespace {

void add_if_open(int epoll, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  if (fd >= 0) ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

PathWatch::PathWatch(const std::string& path)
    : folder_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      mounts_(::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC)),
      either_(::epoll_create1(EPOLL_CLOEXEC)) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  constexpr std::uint32_t kEvents = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                                    IN_MOVE_SELF | IN_DELETE_SELF | IN_ONLYDIR;
  if (folder_ && ::inotify_add_watch(folder_.get(), folder.c_str(), kEvents) < 0) folder_.reset();
  if (!either_) return;
  add_if_open(either_.get(), folder_.get(), EPOLLIN);
  // The kernel reports a change of mounts once per descriptor.
  add_if_open(either_.get(), mounts_.get(), EPOLLPRI);
}

void PathWatch::drain() const {
  std::array<epoll_event, 2> ready{};
  if (either_) ::epoll_wait(either_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  std::array<char, 4096> events{};
  while (folder_ && ::read(folder_.get(), events.data(), events.size()) > 0) {
  }
}

}  // namespace fo::lock
