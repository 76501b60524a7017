// How a lock is named on a command line:
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
    kTcp,    // a lock server behind a port
    kEtcd,   // a key in etcd
    kKube,   // a Lease in Kubernetes
  };
  Kind kind = Kind::kFlock;
  /// Of a flock and of a Unix socket: absolute. Of the others: as it was written, without what
  /// stands behind the "?", for messages.
  std::string path;

  /// For those across a network.
  struct Network {
    /// tcp: one "HOST:PORT"; etcd: URLs without a path, one or more; k8s: the API server's URL, or
    /// none: as a pod finds it.
    std::vector<std::string> servers;
    /// etcd: the key, without the "/" in front; k8s: the Lease's name.
    std::string key;
    /// k8s.
    std::string name_space;
    /// etcd: ttl; k8s: duration. nullopt where the URI says nothing.
    std::optional<base::Duration> ttl;
    /// Of a URI that says https, or of tcp with a ca.
    net::TlsFiles tls;
    /// etcd.
    std::string user;
    std::string password_file;
    /// k8s; empty: as a pod finds it.
    std::string token_file;
  };
  Network network = {};
};

/// Throws Error(kUsage) for what names no lock; the message says what does. Files are not looked
/// at. `kube_api` is for a k8s lock that names no API server; "" for none.
LockUri parse_lock_uri(std::string_view text, std::string_view kube_api = {});

/// Whether it has a place in the file system, beside which others find what belongs to it, and a
/// descriptor that a process can inherit. The others are leases.
bool is_local(const LockUri& uri);
/// "a and b", for messages.
std::string names_of(const std::vector<LockUri>& locks);
/// One that is local. Throws kUsage for the others as well.
LockUri parse_local_lock_uri(std::string_view text);

}  // namespace fo::lock
