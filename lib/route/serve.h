// The daemon of the router: its listeners, its workers, its admin socket and its end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fleet/registry/uri.h"
#include "http/pool.h"
#include "http/server.h"
#include "net/tls_files.h"
#include "route/router.h"
#include "route/worker/registry_source.h"
#include "route/worker/worker_monitor.h"

namespace fo::route {

/// A worker that is named on the command line.
struct NamedWorker {
  /// The worker's id; empty: the URL.
  std::string name;
  std::string url;
};

/// "NAME=URL" or "URL". Throws kUsage: "worker 'text': reason".
NamedWorker parse_worker(const std::string& text);

struct ServeOptions {
  std::vector<std::string> listen = {"127.0.0.1:8080"};
  net::TlsFiles tls;
  std::vector<NamedWorker> workers;
  /// Empty: none.
  std::string registry;
  /// The registry for weights, verdicts and this router's own record if `registry` is read-only.
  std::string state_registry = fleet::kDefaultRegistry;
  SourceOptions source;
  /// A file with the last listing of the registry; empty: none.
  std::string state;
  RouterOptions router;
  /// The router accepts as many clients as PoolLimits allows connections to workers.
  http::ServerLimits limits = {.connections = http::PoolLimits().connections,
                               .kept_bytes = base::kMiB};
  WorkerMonitor::Options monitor;
  /// Empty: the default one.
  std::string admin;
  std::string metrics;
  /// Receives the sockets of the router that runs at the same admin socket, if there is one, which
  /// finishes its requests.
  bool takeover = false;
  /// Time for which connections are accepted after the first signal, and then the time limit of
  /// requests.
  base::Duration lame_duck = std::chrono::seconds(5);
  base::Duration drain = std::chrono::seconds(30);
  int ready_fd = -1;
  /// Reads the configuration again for SIGHUP and `fo-route ctl reload`, and checks all of it. The
  /// router then uses its options: a request in flight goes on as it began, workers that are not
  /// named any more get no new requests, and the health of the others keeps its state. A change of
  /// an address, a file of TLS, the registry, its `state`, or `metrics_groups` needs a new router
  /// (`takeover`): it is refused, and nothing changes. Throws what makes the configuration invalid;
  /// then nothing changes, either. Empty: SIGHUP ends the router.
  std::function<ServeOptions()> reload;
  /// Sets the level and format of the log, after a reload.
  std::function<void()> set_log;
};

/// Serves until a signal ends it, or another router takes over. Returns the exit status: kTryAgain
/// if connections were cut at the end, else kOk. Throws base::Error if it cannot start.
int serve(const ServeOptions& options);

}  // namespace fo::route
