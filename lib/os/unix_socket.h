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

/// Throws Error(kUsage) naming the path when it is empty or longer than kMaxSocketPath.
void check_socket_path(const std::string& path);

/// A listening, non-blocking, CLOEXEC socket bound to `path` with the permission bits `mode`. The
/// path must not exist (the caller knows whether an old one may be removed).
/// Errors: kUsage for the path, kCannotCreate or kNotPermitted for the rest.
base::UniqueFd listen_unix(const std::string& path, mode_t mode = 0600, int backlog = 1024);

/// A connected, blocking, CLOEXEC socket. Waits at most until `deadline` for a full backlog.
/// Errors: kUsage for the path, kUnavailable when nothing is there or nobody answers (ENOENT,
/// ECONNREFUSED), kNotPermitted, kTryAgain when the deadline passes.
base::UniqueFd connect_unix(const std::string& path, const base::Deadline& deadline);

/// False when nothing accepts connections at `path`: there is nothing, or nothing that listens.
/// True also when that can't be told, e.g. for want of permission. Throws Error(kUsage).
bool is_socket_live(const std::string& path);

struct PeerCredentials {
  pid_t pid;
  uid_t uid;
  gid_t gid;
};
/// Of the process that connected (or listened). Throws Error(kOsError).
PeerCredentials peer_credentials(int socket_fd);
/// Its supplementary groups. Throws Error(kOsError).
std::vector<gid_t> peer_groups(int socket_fd);

}  // namespace fo::os
