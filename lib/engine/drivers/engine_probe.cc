#include "engine/drivers/engine_probe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/deadline.h"
#include "base/error.h"
#include "http/client.h"
#include "json/object.h"
#include "json/probe_result.h"

namespace fo::engine {
namespace {

using nlohmann::json;

constexpr base::ByteCount kMaxPageBytes = base::kMiB;

// Reads a status page; false if it is invalid.
bool read_status(const http::Response& response, EngineProbeAnswer& answer) {
  if (response.status != 200) return false;
  const std::optional<json> page = fo::json::find_object(response.body, kMaxPageBytes);
  const json* state = page ? fo::json::find(*page, "state") : nullptr;
  if (state == nullptr || !state->is_string()) return false;
  answer.state = parse_state(state->get<std::string>());
  const json* id = fo::json::find(*page, "id");
  if (id != nullptr && id->is_string()) answer.id = id->get<std::string>();
  const json* since = fo::json::find(*page, "since");
  if (since != nullptr && since->is_number()) answer.since = since->get<double>();
  return answer.state.has_value();
}

bool is_expected(const EngineProbe& probe, EngineState state) {
  if (probe.states.empty()) return state != EngineState::kDead;
  return std::find(probe.states.begin(), probe.states.end(), state) != probe.states.end();
}

void ask_once(const EngineProbe& probe, EngineProbeAnswer& answer) {
  http::FetchOptions options;
  options.response_limit = kMaxPageBytes;
  const http::Response response =
      http::fetch("GET", probe.url, base::Deadline::after(probe.timeout), options);
  if (!read_status(response, answer)) {
    answer.reason = "fetch " + base::quoted(probe.url) + ": status " +
                    std::to_string(response.status) + ", not a state of an engine";
  } else if (!is_expected(probe, *answer.state)) {
    answer.reason =
        "engine at " + base::quoted(probe.url) + ": " + std::string(state_name(*answer.state));
  } else {
    answer.yes = true;
  }
}

}  // namespace

EngineProbeAnswer probe_engine(const EngineProbe& probe) {
  return os::ask_until_yes(probe, ask_once);
}

std::string to_json(const EngineProbeAnswer& answer) {
  return fo::json::probe_result(answer.yes, answer.reason,
                                {{"state", answer.state ? json(state_name(*answer.state)) : json()},
                                 {"id", fo::json::or_null(!answer.id.empty(), answer.id)},
                                 {"since", fo::json::or_null(answer.since > 0, answer.since)}});
}

}  // namespace fo::engine
