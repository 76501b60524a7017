#include "os/socket/fd_passing.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace fo::os {
namespace {

// Large enough for the maximum number of descriptors of one message.
struct ControlBuffer {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxFdsPerMessage * sizeof(int))> bytes;
};

void take_fds(msghdr& message, std::vector<base::UniqueFd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

std::ptrdiff_t send_with_fds(int socket_fd, std::span<const std::byte> bytes,
                             std::span<const int> fds) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ControlBuffer control;
  if (!fds.empty()) {
    if (fds.size() > kMaxFdsPerMessage || bytes.empty()) return -EINVAL;
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  for (;;) {
    // Without descriptors, send(2) is faster.
    const ssize_t sent = fds.empty() ? ::send(socket_fd, bytes.data(), bytes.size(), MSG_NOSIGNAL)
                                     : ::sendmsg(socket_fd, &message, MSG_NOSIGNAL);
    if (sent >= 0) return sent;
    if (errno != EINTR) return -errno;
  }
}

std::ptrdiff_t receive_with_fds(int socket_fd, std::span<std::byte> buffer,
                                std::vector<base::UniqueFd>& fds) {
  iovec part{buffer.data(), buffer.size()};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  for (;;) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    const ssize_t received = ::recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
    if (received < 0) {
      if (errno == EINTR) continue;
      return -errno;
    }
    take_fds(message, fds);
    if ((message.msg_flags & MSG_CTRUNC) != 0) return -EMSGSIZE;
    return received;
  }
}

}  // namespace fo::os
