// The lock server: one lock, whose holders and waiters are the connections of a Unix socket and, as
// leases, of a TCP port, and a state file from which the next server continues. An event loop in
// the calling thread does everything except writing that file, which may stall.
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
  /// Time in which a holder on file must reconnect to a restarted server.
  base::Duration reconnect_window = std::chrono::seconds(10);
  /// "HOST:PORT" to serve in addition to the socket, with a numeric host; port 0: any. Empty: none.
  std::string listen;
  /// All of them, or none; then `listen` must be a loopback address. Clients need a certificate.
  net::TlsFiles tls;
  /// A TCP client that sends nothing for this long loses its part in the lock; kMinExpiry to
  /// kMaxExpiry, and at most the reconnect window.
  base::Duration expiry = std::chrono::seconds(10);
  /// HOST:PORT for Prometheus metrics; empty for none.
  std::string metrics;
  /// Receives a newline, and is closed, when connections are accepted; with `listen`, the address
  /// with its port precedes it. -1 for none. Takes ownership.
  int ready_fd = -1;
  /// A connection without a request for the lock is closed when it sends nothing for this long.
  base::Duration silence_limit = std::chrono::seconds(30);
  /// Further clients wait in the backlog. TCP clients get at most half of these connections.
  std::size_t max_connections = 4096;
};

/// Serves until SIGTERM, SIGINT, SIGHUP or SIGQUIT, which it blocks, and returns 0. The state file
/// stays, so that holders may reconnect to the next server. The end waits for a pending write of
/// that file up to two seconds or the next signal; then the process exits in here. Single thread
/// only. Throws kCannotCreate if another server uses the socket or the state file, kUsage for the
/// socket path, the ready descriptor and options that do not fit `listen`, and the errors of
/// http::listen_tcp, http::make_tls_server, load_state and prepare_state.
int serve_lock(const LockdConfig& config);

}  // namespace fo::lock
