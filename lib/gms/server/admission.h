// Decides which clients a server accepts, and how many connections each may have, by their
// credentials from the kernel. No process can use up all connections, and no user except root and
// the server's own. Pure.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "os/socket/unix_socket.h"

namespace fo::gms {

/// Accepted besides root and the server's own user.
struct AccessRules {
  std::vector<uid_t> uids;
  /// Matches the peer's group or a supplementary one.
  std::vector<gid_t> gids;
};

class Admission {
 public:
  /// `max_connections` is the total: a process may use a quarter of it, and a user other than
  /// `own_uid` or root half.
  Admission(AccessRules rules, uid_t own_uid, std::size_t max_connections);

  /// Whether there is a rule for groups, so that admit() needs those of the peer.
  [[nodiscard]] bool wants_groups() const { return !rules_.gids.empty(); }

  /// Whether the rules accept the peer; the numbers of connections are not checked.
  [[nodiscard]] bool is_allowed(const os::PeerCredentials& peer,
                                const std::vector<gid_t>& groups) const;

  /// Adds a connection of the peer, or returns the reason for refusing it. Processes of other pid
  /// namespaces, whose pid is 0, count as one.
  std::optional<std::string> admit(const os::PeerCredentials& peer,
                                   const std::vector<gid_t>& groups);
  /// Call it once for each connection.
  void release(const os::PeerCredentials& peer);

  [[nodiscard]] bool full() const { return connections_ >= max_connections_; }

 private:
  [[nodiscard]] bool is_trusted(uid_t uid) const { return uid == own_uid_ || uid == 0; }

  AccessRules rules_;
  uid_t own_uid_;
  std::size_t max_connections_;
  std::size_t connections_ = 0;
  std::map<pid_t, std::size_t> by_process_;
  std::map<uid_t, std::size_t> by_user_;
};

}  // namespace fo::gms
