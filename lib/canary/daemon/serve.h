// The daemon: checks the workers of a registry, writes verdicts on them, and serves its metrics and
// its state.
#pragma once

#include <string>
#include <vector>

#include "canary/daemon/checker.h"
#include "canary/daemon/workers.h"

namespace fo::canary {

/// A log of the kernel of a host.
struct XidSource {
  /// Host, as records of workers name it.
  std::string host;
  std::string path;
};

struct ServeOptions {
  std::string registry;
  /// Registry for verdicts, if `registry` is only read.
  std::string state_registry;
  std::vector<CanaryFile> files;
  WorkersOptions workers;
  CheckerOptions checker;
  /// The file that keeps the state of the workers over a restart; empty: none.
  std::string state;
  std::vector<XidSource> xid_logs;
  std::string admin;
  /// Empty: none.
  std::string metrics;
  int ready_fd = -1;
};

/// Runs until a signal ends it. Returns the exit status. Throws base::Error if it cannot start.
int serve(const ServeOptions& options);

}  // namespace fo::canary
