// What a probe of the engine is answered, by its role (the seeds' Decision 2): the rules, and no
// server. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "engine/state.h"

namespace fo::engine {

/// From the environment, once.
struct HealthRules {
  /// DYN_SYSTEM_STARTING_HEALTH_STATUS: what Init answers.
  bool ready_at_start = false;
  /// DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS: these endpoints alone decide while Active. Empty: the
  /// registered targets do, and where there are none, the engine's own health.
  std::vector<std::string> endpoints;
  /// A waking that takes longer is unhealthy.
  base::Duration waking_limit = std::chrono::seconds(60);
};

/// Reads the two variables: "ready" or "notready"; a JSON list of names, or names with commas
/// between them, or nothing. Throws Error(kConfig), naming the variable.
HealthRules health_rules_from_environment();

/// What is known of the engine now.
struct HealthFacts {
  EngineState state = EngineState::kInit;
  /// For how long it has been in this state.
  base::Duration in_state{};
  /// When it entered it, in seconds since 1970.
  double since = 0;
  /// By name, ready or not: "generate" (a generation proved it not long ago) and every target that
  /// was registered. An endpoint that is not here is not ready.
  std::map<std::string, bool> endpoints;
  /// Of those, the health-check targets that decide where no endpoints are named in the rules.
  std::vector<std::string> targets;
  /// The engine's own health; what is wrong with it, where something is.
  bool engine_ready = false;
  std::string trouble;
};

struct HealthAnswer {
  bool ready = false;
  /// {"status":"ready"|"notready","state":…,"since":…,"endpoints":{name:"ready"|"notready"…}} with
  /// every endpoint that is known or asked for, and "reason" where it is not ready.
  std::string body;
};

HealthAnswer answer_health(const HealthRules& rules, const HealthFacts& facts);

}  // namespace fo::engine
