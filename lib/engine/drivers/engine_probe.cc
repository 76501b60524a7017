#include "engine/drivers/engine_probe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/deadline.h"
#include "base/error.h"
#include "http/client.h"
#include "json/dump.h"
#include "os/probe.h"

namespace fo::engine {
namespace {

using nlohmann::json;

// Reads a status page; false if it is invalid.
bool read_status(const http::Response& response, EngineProbeAnswer& answer) {
  if (response.status != 200) return false;
  const json page = json::parse(response.body, nullptr, false);
  if (!page.is_object()) return false;
  const auto state = page.find("state");
  if (state == page.end() || !state->is_string()) return false;
  answer.state = parse_state(state->get<std::string>());
  const auto id = page.find("id");
  if (id != page.end() && id->is_string()) answer.id = id->get<std::string>();
  const auto since = page.find("since");
  if (since != page.end() && since->is_number()) answer.since = since->get<double>();
  return answer.state.has_value();
}

bool is_expected(const EngineProbe& probe, EngineState state) {
  if (probe.states.empty()) return state != EngineState::kDead;
  return std::find(probe.states.begin(), probe.states.end(), state) != probe.states.end();
}

EngineProbeAnswer probe_once(const EngineProbe& probe) {
  EngineProbeAnswer answer;
  http::FetchOptions options;
  options.response_limit = base::kMiB;
  try {
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
  } catch (const base::Error& error) {
    if (!os::is_no(error)) throw;
    answer.reason = error.what();
  }
  return answer;
}

}  // namespace

EngineProbeAnswer probe_engine(const EngineProbe& probe) {
  return os::ask_until_yes(probe.wait, [&] { return probe_once(probe); });
}

std::string to_json(const EngineProbeAnswer& answer) {
  json out{{"result", answer.yes ? "yes" : "no"},
           {"state", nullptr},
           {"id", nullptr},
           {"since", nullptr}};
  if (answer.state) out["state"] = state_name(*answer.state);
  if (!answer.id.empty()) out["id"] = answer.id;
  if (answer.since > 0) out["since"] = answer.since;
  if (!answer.yes) out["reason"] = answer.reason;
  return fo::json::dump(out);
}

}  // namespace fo::engine
