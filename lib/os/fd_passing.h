// The one pair of functions that moves bytes together with file descriptors over a Unix socket.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/unique_fd.h"

namespace fo::os {

/// SCM_MAX_FD of the kernel: more in one message are refused with EINVAL.
inline constexpr std::size_t kMaxFdsPerMessage = 253;

/// One sendmsg(2), or send(2) for bytes alone, without SIGPIPE: bytes sent (descriptors travel with
/// the first of them), or -errno. `fds` stay the caller's; at most kMaxFdsPerMessage. Never sends
/// descriptors without bytes. Blocks if the socket does.
std::ptrdiff_t send_with_fds(int socket_fd, std::span<const std::byte> bytes,
                             std::span<const int> fds);

/// One recvmsg(2): bytes received (0: the peer closed), or -errno. Every descriptor that came is
/// owned and CLOEXEC before anything else happens, and appended to `fds`, whatever their number;
/// -EMSGSIZE when the kernel had to drop some (control buffer or descriptor table full).
std::ptrdiff_t receive_with_fds(int socket_fd, std::span<std::byte> buffer,
                                std::vector<base::UniqueFd>& fds);

}  // namespace fo::os
