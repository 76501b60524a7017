// Supervises a worker and keeps its record, from `starting` through `ready` and `draining` until
// all of its processes have ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "fleet/registry/registry.h"

namespace fo::fleet {

struct RunOptions {
  /// The worker's record. Its life is kStarting, or kSpare for a command that reports its own life.
  Record record;
  /// The card that the record names; it is written before the record.
  std::optional<Record> card = {};
  /// If this is fo-shadow, the record follows its states: only the active engine of a pair is
  /// ready.
  std::vector<std::string> command;
  /// This URL is queried until it answers 200; then the worker is ready. Empty: it is ready at
  /// once.
  std::string ready_url;
  base::Duration ready_timeout = std::chrono::minutes(30);
  /// This URL is queried at the end until it answers 200; then no request is in progress. Empty:
  /// the worker is ended at once.
  std::string drain_url;
  base::Duration drain_timeout = std::chrono::seconds(30);
  /// The time from the SIGTERM, which at first only the command gets, to the SIGKILL.
  base::Duration grace = std::chrono::seconds(10);
  /// The timeout of each change in the registry.
  base::Duration timeout = std::chrono::seconds(5);
};

/// Runs the command until it ends or this process gets a signal. Then the record says draining;
/// when the worker is drained, the command is ended, and then its remaining processes. A second
/// signal ends them at once. An unreachable registry delays nothing: card and record are written
/// when it is reachable. Returns the command's exit status. Throws KeyInUse, kNotPermitted and the
/// like from the first registration, kNotFound and kCannotRun for the command, and kUnavailable if
/// it is not ready in time.
int run_worker(Registry& registry, const RunOptions& options);

}  // namespace fo::fleet
