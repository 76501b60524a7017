// The answer to a probe of the engine, by its state: the rules of fo-shadow(1), without a server.
// Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/units.h"
#include "engine/state.h"

namespace fo::engine {

/// The rules, which are read once from the environment.
struct HealthRules {
  /// DYN_SYSTEM_STARTING_HEALTH_STATUS: the answer in Init.
  bool ready_at_start = false;
  /// DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS: only these endpoints decide while Active. Empty: the
  /// registered targets decide, and without targets the engine's own health.
  std::vector<std::string> endpoints;
  /// An engine that wakes for longer is unhealthy.
  base::Duration waking_limit = std::chrono::seconds(60);
};

/// Reads the two variables: "ready" or "notready"; a JSON list of names, or names separated by
/// commas, or nothing. Throws Error(kConfig) with the variable's name.
HealthRules health_rules_from_environment();

/// The current state of the engine.
struct HealthFacts {
  EngineState state = EngineState::kInit;
  /// The time since it entered this state.
  base::Duration in_state{};
  /// When it entered this state, in seconds since 1970.
  double since = 0;
  /// The readiness by endpoint: "generate" (proven by a recent generation) and every registered
  /// target. A missing endpoint is not ready.
  std::map<std::string, bool> endpoints;
  /// The health-check targets among them, which decide if the rules name no endpoints.
  std::vector<std::string> targets;
  /// The engine's own health, and the reason if it is not healthy.
  bool engine_ready = false;
  std::string reason;
};

struct HealthAnswer {
  bool ready = false;
  /// {"status":"ready"|"notready","state":…,"since":…,"endpoints":{name:"ready"|"notready"…}} with
  /// every known or configured endpoint, and "reason" if the engine is not ready.
  std::string body;
};

HealthAnswer answer_health(const HealthRules& rules, const HealthFacts& facts);

}  // namespace fo::engine
