#include "engine/health.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "json/object.h"
#include "text/ascii.h"

namespace fo::engine {
namespace {

constexpr const char* kStartingVariable = "DYN_SYSTEM_STARTING_HEALTH_STATUS";
constexpr const char* kEndpointsVariable = "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS";

constexpr base::ByteCount kMaxEndpointsBytes = base::kMiB;

constexpr std::string_view kReady = "ready";
constexpr std::string_view kNotReady = "notready";

[[noreturn]] void refuse(const char* variable, std::string_view value, const std::string& reason) {
  throw base::Error(base::ExitStatus::kConfig,
                    std::string("read ") + variable + " " + base::quoted(value) + ": " + reason);
}

bool starts_ready(std::string_view value) {
  if (value != kReady && value != kNotReady) {
    refuse(kStartingVariable, value, "neither 'ready' nor 'notready'");
  }
  return value == kReady;
}

std::vector<std::string> read_endpoints(std::string_view value) {
  const std::string_view text = text::trimmed(value);
  if (text.empty()) return {};
  std::vector<std::string> names;
  if (text.starts_with('[')) {
    try {
      names = fo::json::parse(text, kMaxEndpointsBytes).get<std::vector<std::string>>();
    } catch (const std::exception&) {
      refuse(kEndpointsVariable, value, "not a JSON list of names");
    }
  } else {
    for (const std::string_view name : text::split(text, ',')) {
      names.emplace_back(text::trimmed(name));
    }
  }
  for (const std::string& name : names) {
    if (name.empty()) refuse(kEndpointsVariable, value, "an empty name");
  }
  return names;
}

// The reason why the engine is not ready while it is active; empty if it is.
std::string active_reason(const HealthRules& rules, const HealthFacts& facts) {
  const std::vector<std::string>& deciding =
      rules.endpoints.empty() ? facts.targets : rules.endpoints;
  for (const std::string& name : deciding) {
    const auto known = facts.endpoints.find(name);
    if (known == facts.endpoints.end() || !known->second) {
      return "endpoint " + base::quoted(name) + " is not ready";
    }
  }
  if (!deciding.empty() || facts.engine_ready) return {};
  return facts.reason.empty() ? "the engine is not healthy" : facts.reason;
}

std::string find_reason(const HealthRules& rules, const HealthFacts& facts) {
  switch (facts.state) {
    case EngineState::kInit:
      return rules.ready_at_start ? "" : "the engine is being started";
    case EngineState::kStandby:
      return {};
    case EngineState::kWaking:
      if (facts.in_state <= rules.waking_limit) return {};
      return "waking for longer than " + base::format_duration(rules.waking_limit);
    case EngineState::kActive:
      return active_reason(rules, facts);
    case EngineState::kDead:
      break;
  }
  return "the engine has ended";
}

}  // namespace

HealthRules health_rules_from_environment() {
  HealthRules rules;
  if (const char* value = std::getenv(kStartingVariable))
    rules.ready_at_start = starts_ready(value);
  if (const char* value = std::getenv(kEndpointsVariable)) rules.endpoints = read_endpoints(value);
  return rules;
}

HealthAnswer answer_health(const HealthRules& rules, const HealthFacts& facts) {
  const std::string reason = find_reason(rules, facts);
  HealthAnswer answer;
  answer.ready = reason.empty();
  nlohmann::json endpoints = nlohmann::json::object();
  for (const auto& [name, ready] : facts.endpoints) endpoints[name] = ready ? kReady : kNotReady;
  // Configured endpoints that were never registered are listed, too.
  for (const auto* names : {&rules.endpoints, &facts.targets}) {
    for (const std::string& name : *names) {
      if (!endpoints.contains(name)) endpoints[name] = kNotReady;
    }
  }
  nlohmann::json body{{"status", answer.ready ? kReady : kNotReady},
                      {"state", state_name(facts.state)},
                      {"since", facts.since},
                      {"endpoints", std::move(endpoints)}};
  if (!answer.ready) body["reason"] = reason;
  answer.body = fo::json::dump(body);
  return answer;
}

}  // namespace fo::engine
