#include "os/socket/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "os/pause.h"

namespace fo::os {
namespace {

using base::Error;
using base::ExitStatus;
using base::throw_errno;
using base::UniqueFd;

std::pair<sockaddr_un, socklen_t> make_address(const std::string& path) {
  check_socket_path(path);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1)};
}

UniqueFd make_socket(int flags) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd) throw_errno(errno, "create a Unix socket");
  return fd;
}

// The generic sockaddr that the socket calls take.
const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

}  // namespace

void check_socket_path(const std::string& path) {
  if (path.empty()) throw Error(ExitStatus::kUsage, "socket path '': empty");
  if (path.size() > kMaxSocketPath) {
    throw Error(ExitStatus::kUsage, "socket path " + base::quoted(path) + ": " +
                                        std::to_string(path.size()) + " bytes, at most " +
                                        std::to_string(kMaxSocketPath) + " are allowed");
  }
}

UniqueFd listen_unix(const std::string& path, mode_t mode, int backlog) {
  const auto [address, size] = make_address(path);
  UniqueFd fd = make_socket(SOCK_NONBLOCK);
  // The mode of the socket is set before bind: Linux applies it, and the umask, in bind, so that at
  // no time others could connect.
  if (::fchmod(fd.get(), mode) != 0) {
    throw_errno(errno, "set the mode of socket " + base::quoted(path));
  }
  if (::bind(fd.get(), generic(address), size) != 0) {
    base::throw_cannot_create(errno, "bind socket " + base::quoted(path));
  }
  const auto fail_bound = [&](const std::string& what) {
    const int err = errno;
    ::unlink(path.c_str());
    base::throw_cannot_create(err, what + " " + base::quoted(path));
  };
  if (::chmod(path.c_str(), mode) != 0) fail_bound("set the mode of socket");
  if (::listen(fd.get(), backlog) != 0) fail_bound("listen on socket");
  return fd;
}

UniqueFd connect_unix(const std::string& path, const base::Deadline& deadline) {
  const auto [address, size] = make_address(path);
  const std::string what = "connect to socket " + base::quoted(path);
  UniqueFd fd = make_socket(SOCK_NONBLOCK);
  while (::connect(fd.get(), generic(address), size) != 0) {
    const int err = errno;
    if (err == EINTR) continue;
    if (err == EAGAIN) {
      // The backlog is full. Linux has no event for that, so the call is repeated after a moment.
      if (deadline.expired()) throw Error(ExitStatus::kTryAgain, what + ": timed out");
      pause_for(std::chrono::milliseconds(1));
      continue;
    }
    const bool absent = err == ENOENT || err == ECONNREFUSED || err == ENOTDIR;
    throw_errno(err, absent ? ExitStatus::kUnavailable : base::status_of_errno(err), what);
  }
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) throw_errno(errno, what);
  return fd;
}

bool is_socket_live(const std::string& path) {
  check_socket_path(path);
  try {
    connect_unix(path, base::Deadline::after(base::Duration::zero()));
    return true;
  } catch (const Error& error) {
    // A full backlog, or a socket without permission, means that a server listens.
    return error.status() != ExitStatus::kUnavailable;
  }
}

PeerCredentials peer_credentials(int socket_fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    throw_errno(errno, "read the peer's credentials");
  }
  return {credentials.pid, credentials.uid, credentials.gid};
}

void check_own_user(int socket_fd, const std::string& what) {
  const PeerCredentials peer = peer_credentials(socket_fd);
  if (peer.uid == ::geteuid() || peer.uid == 0) return;
  throw Error(ExitStatus::kNotPermitted,
              what + " process " + std::to_string(peer.pid) + ": it belongs to another user");
}

std::vector<gid_t> peer_groups(int socket_fd) {
  std::vector<gid_t> groups(64);
  for (;;) {
    auto size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const int result = ::getsockopt(socket_fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
    const bool fits = size <= groups.size() * sizeof(gid_t);
    groups.resize(size / sizeof(gid_t));
    if (result == 0) return groups;
    // ERANGE: `size` is the required size.
    if (errno != ERANGE || fits) throw_errno(errno, "read the peer's groups");
  }
}

}  // namespace fo::os
