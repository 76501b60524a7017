// The lock server: one lock, whose holders and waiters are the connections of a Unix socket and, as
// leases, those of a TCP port, and a state file that lets the next server go on where this one
// ended. An event loop in the calling thread does everything but the writing of that file, which
// may stall.
#pragma once

#include <string>

#include "base/units.h"
#include "lock/lockd/lockd_protocol.h"
#include "net/tls_files.h"

namespace fo::lock {

struct LockdConfig {
  std::string socket_path{kDefaultLockdSocket};
  /// Empty: `<socket_path>.state`.
  std::string state_path;
  /// How long the holder that a new server finds on file has to come back.
  base::Duration reconnect_window = std::chrono::seconds(10);
  /// "HOST:PORT" to serve beside the socket, the host numeric, port 0: any. Empty: none.
  std::string listen;
  /// All of them, or none: then `listen` is a loopback address. Clients must have a certificate.
  net::TlsFiles tls;
  /// A client over TCP that says nothing for this long has no part in the lock any more;
  /// kShortestExpiry to kLongestExpiry, and no longer than the reconnect window.
  base::Duration expiry = std::chrono::seconds(10);
  /// HOST:PORT to serve Prometheus' metrics on; empty for none.
  std::string metrics;
  /// Gets a newline, and is closed, once connections are accepted; with `listen`, the address with
  /// its port stands before it. -1 for none. Taken over.
  int ready_fd = -1;
  /// A connection that has not asked for the lock is dropped when it says nothing for this long.
  base::Duration silence_limit = std::chrono::seconds(30);
  /// More clients than this wait in the socket's backlog, and more than half of it in the port's.
  std::size_t max_connections = 4096;
};

/// Serves until SIGTERM, SIGINT or SIGHUP, which it blocks: then returns 0. The state file stays as
/// it is, so that holders may come back to the next server. While that file is written the end
/// waits for it, up to two seconds or the next signal: then the process exits in here. Single
/// thread only. Throws kCannotCreate when another server has the socket or the state file, kUsage
/// for the socket path, the ready descriptor and what does not go with `listen`, and the errors of
/// http::listen_tcp, http::make_tls_server, load_state and prepare_state.
int serve_lock(const LockdConfig& config);

}  // namespace fo::lock
