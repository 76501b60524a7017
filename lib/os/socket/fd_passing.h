// The one pair of functions that sends and receives bytes with file descriptors over a Unix socket.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/unique_fd.h"

namespace fo::os {

/// The kernel's SCM_MAX_FD: a message with more fails with EINVAL.
inline constexpr std::size_t kMaxFdsPerMessage = 253;

/// One sendmsg(2), or send(2) for bytes alone, without SIGPIPE. Returns the bytes sent (descriptors
/// travel with the first of them), or -errno. The caller keeps `fds`; at most kMaxFdsPerMessage.
/// Never sends descriptors without bytes. Blocks if the socket does.
std::ptrdiff_t send_with_fds(int socket_fd, std::span<const std::byte> bytes,
                             std::span<const int> fds);

/// One recvmsg(2). Returns the bytes received (0: the peer closed), or -errno. Every descriptor
/// that arrives is owned and CLOEXEC before anything else happens, and is appended to `fds`,
/// whatever their number. -EMSGSIZE if the kernel dropped some (control buffer or descriptor table
/// full).
std::ptrdiff_t receive_with_fds(int socket_fd, std::span<std::byte> buffer,
                                std::vector<base::UniqueFd>& fds);

}  // namespace fo::os
