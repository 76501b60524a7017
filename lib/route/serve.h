// The daemon of the router: its listeners, its workers, its admin socket and its end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "net/tls_files.h"
#include "route/registry_source.h"
#include "route/router.h"
#include "route/worker_monitor.h"

namespace fo::route {

/// A worker that is named on the command line.
struct NamedWorker {
  /// Empty: the URL.
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
  SourceOptions source;
  RouterOptions router;
  http::ServerLimits limits;
  WorkerMonitor::Options monitor;
  /// Empty: the default one.
  std::string admin;
  std::string metrics;
  /// How long connections are accepted after the first signal, and how long requests may then take.
  base::Duration lame_duck = std::chrono::seconds(5);
  base::Duration drain = std::chrono::seconds(30);
  int ready_fd = -1;
};

/// Serves until a signal ends it. Returns the exit status. Throws base::Error if it cannot start.
int serve(const ServeOptions& options);

}  // namespace fo::route
