// The names of locks on a command line:
//   flock:/path, or the bare path
//   unix:/path.sock
//   tcp:HOST:PORT[?ca=FILE&cert=FILE&key=FILE]
//   etcd:http[s]://HOST:PORT[,HOST:PORT…]/KEY[?ttl=10s&ca=…&cert=…&key=…&user=…&password-file=…]
//   k8s:NAMESPACE/LEASE[?duration=15s&api=URL&ca=…&cert=…&key=…&token-file=…]
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "net/tls_files.h"

namespace fo::lock {

inline constexpr std::string_view kDefaultLockPath = "/shared/failover.lock";

struct LockUri {
  enum class Kind {
    kFlock,  // a file
    kLockd,  // a lock server behind a Unix socket
    kTcp,    // a lock server behind a TCP port
    kEtcd,   // a key in etcd
    kKube,   // a Lease in Kubernetes
  };
  Kind kind = Kind::kFlock;
  /// An absolute path for a flock and a Unix socket. For the others, the URI without its
  /// parameters, for messages.
  std::string path;

  /// For locks across a network.
  struct Network {
    /// tcp: one "HOST:PORT"; etcd: one or more URLs without a path; k8s: the API server's URL, or
    /// none for the pod's own cluster.
    std::vector<std::string> servers;
    /// etcd: the key, without the leading "/"; k8s: the Lease's name.
    std::string key;
    /// Only for k8s.
    std::string name_space;
    /// etcd: ttl; k8s: duration. nullopt if the URI has none.
    std::optional<base::Duration> ttl;
    /// Set for https, and for tcp with a ca.
    net::TlsFiles tls;
    /// Only for etcd.
    std::string user;
    std::string password_file;
    /// Only for k8s; empty: the pod's own.
    std::string token_file;
  };
  Network network = {};
};

/// Throws Error(kUsage) for an invalid URI, with the valid forms. Does not access files. `kube_api`
/// is the API server for k8s locks that name none; may be empty.
LockUri parse_lock_uri(std::string_view text, std::string_view kube_api = {});

/// Whether the lock has a path in the file system, which related files are placed beside, and a
/// descriptor that processes can inherit. The others are leases.
bool is_local(const LockUri& uri);
/// "a and b", for messages.
std::string names_of(const std::vector<LockUri>& locks);
/// Accepts local locks only; throws kUsage for the others as well.
LockUri parse_local_lock_uri(std::string_view text);

}  // namespace fo::lock
