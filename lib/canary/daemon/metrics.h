// The canary's numbers for /metrics and its state for operators. Pure.
#pragma once

#include <optional>
#include <string>

#include "canary/daemon/gpu_errors.h"
#include "canary/daemon/workers.h"

namespace fo::canary {

struct DaemonCounts {
  metrics::Counter verdicts_written;
  metrics::Counter verdicts_failed;
  metrics::Counter state_failures;
  /// Whether the registry accepted the last verdict.
  bool registry_is_up = true;
  /// nullopt if no log of the kernel is read.
  std::optional<XidCounts> xids = {};
};

/// The metrics in Prometheus' format: fo_canary_*, and dynamo_health_check_duration_seconds, whose
/// name is from NVIDIA Dynamo's plan for fault tolerance.
std::string to_text(const Workers& workers, const DaemonCounts& counts);

/// All workers, or the one with this id, as a JSON object; empty if the id is unknown.
std::string state_json(const Workers& workers, const std::string& id);
/// Formats the result of state_json as a table; with `has_checks` also the last checks of each
/// worker. Throws kProtocol for any other text.
std::string state_table(const std::string& json, bool has_checks);

}  // namespace fo::canary
