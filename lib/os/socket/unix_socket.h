// Unix stream sockets: listening, connecting with a deadline, the peer's credentials.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"

namespace fo::os {

/// The longest path a Unix socket address holds.
inline constexpr std::size_t kMaxSocketPath = 107;

/// Throws Error(kUsage) with the path if it is empty or longer than kMaxSocketPath.
void check_socket_path(const std::string& path);

/// A listening, non-blocking, CLOEXEC socket bound to `path` with the permission bits `mode`. The
/// path must not exist; callers know whether an old one may be removed. Throws kUsage for the path,
/// else kCannotCreate or kNotPermitted.
base::UniqueFd listen_unix(const std::string& path, mode_t mode = 0600, int backlog = 1024);

/// A connected, blocking, CLOEXEC socket. Waits until `deadline` if the backlog is full. Throws
/// kUsage for the path, kUnavailable if no server listens (ENOENT, ECONNREFUSED), kNotPermitted,
/// and kTryAgain at the deadline.
base::UniqueFd connect_unix(const std::string& path, const base::Deadline& deadline);

/// Whether a server accepts connections at `path`; also true if that cannot be determined, for
/// example without permission. Throws Error(kUsage).
bool is_socket_live(const std::string& path);

struct PeerCredentials {
  pid_t pid;
  uid_t uid;
  gid_t gid;
};
/// The credentials of the process that connected (or listened). Throws Error(kOsError).
PeerCredentials peer_credentials(int socket_fd);
/// Throws Error(kNotPermitted), "WHAT process 7: it belongs to another user", unless the peer runs
/// as our own user or as root; also Error(kOsError).
void check_own_user(int socket_fd, const std::string& what);
/// The peer's supplementary groups. Throws Error(kOsError).
std::vector<gid_t> peer_groups(int socket_fd);

}  // namespace fo::os
