// Supervises a worker and keeps its record: from `starting` over `ready` and `draining` until all
// of its processes have ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "fleet/registry/registry.h"

namespace fo::fleet {

struct RunOptions {
  /// Its life is kStarting, or kSpare for a command that reports its own.
  Record record;
  /// The card that the record names; it is written before the record.
  std::optional<Record> card = {};
  /// If this is fo-shadow, the record follows its states: only the active engine of a pair is
  /// ready.
  std::vector<std::string> command;
  /// Queried until it answers 200, and then the worker is ready; empty: it is ready at once.
  std::string ready_url;
  base::Duration ready_timeout = std::chrono::minutes(30);
  /// Queried at the end until it answers 200, and then no request is in progress; empty: the worker
  /// is ended at once.
  std::string drain_url;
  base::Duration drain_timeout = std::chrono::seconds(30);
  /// The time from SIGTERM, which the command gets alone at first, to SIGKILL.
  base::Duration grace = std::chrono::seconds(10);
  /// The timeout of each change in the registry.
  base::Duration timeout = std::chrono::seconds(5);
};

/// Runs the command until it ends, or a signal ends this process: then the record says draining,
/// and the command is ended when it is drained, and then what is left of its processes. A second
/// signal ends them at once. A registry that cannot be reached delays nothing: card and record are
/// written when it can be.
/// Returns the command's exit status. Throws KeyIsKept, kNotPermitted and the like from the first
/// registration, kNotFound and kCannotRun for the command, and kUnavailable if it is not ready in
/// time.
int run_worker(Registry& registry, const RunOptions& options);

}  // namespace fo::fleet
