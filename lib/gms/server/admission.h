// Who may be a client of a server, and how many places each may take: by the credentials that the
// kernel vouches for, and so that no process and no user but our own can take all of them. Pure.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "os/unix_socket.h"

namespace fo::gms {

/// Besides root and the server's own user.
struct AccessRules {
  std::vector<uid_t> uids;
  /// A peer is let in by its group or by a supplementary one.
  std::vector<gid_t> gids;
};

class Admission {
 public:
  /// `places` in all: a process may have a quarter of them, and a user that is not `own_uid` or
  /// root half.
  Admission(AccessRules rules, uid_t own_uid, std::size_t places);

  /// Whether there is a rule for groups, for which enter() wants the peer's.
  [[nodiscard]] bool wants_groups() const { return !rules_.gids.empty(); }

  /// Whether the rules let the peer in, if there is a place.
  [[nodiscard]] bool is_allowed(const os::PeerCredentials& peer,
                                const std::vector<gid_t>& groups) const;

  /// Gives the peer a place; or why not. Processes of other pid namespaces, whose pid is 0, count
  /// as one.
  std::optional<std::string> enter(const os::PeerCredentials& peer,
                                   const std::vector<gid_t>& groups);
  /// Once for each place.
  void leave(const os::PeerCredentials& peer);

  [[nodiscard]] bool full() const { return taken_ >= places_; }

 private:
  [[nodiscard]] bool is_trusted(uid_t uid) const { return uid == own_uid_ || uid == 0; }

  AccessRules rules_;
  uid_t own_uid_;
  std::size_t places_;
  std::size_t taken_ = 0;
  std::map<pid_t, std::size_t> by_process_;
  std::map<uid_t, std::size_t> by_user_;
};

}  // namespace fo::gms
