#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "canary/check/full_check.h"
#include "cli/screen/output.h"
#include "commands.h"
#include "fleet/engine_query.h"
#include "json/object.h"
#include "loop/run.h"
#include "text/table.h"

namespace fo::fo_canary {
namespace {

using canary::Attempt;
using canary::FullCheck;

std::string as_json(const FullCheck& check) {
  nlohmann::json checks = nlohmann::json::array();
  for (const FullCheck::Part& part : check.parts) {
    nlohmann::json one = canary::to_json(part.attempt);
    one["check"] = canary::to_string(part.step);
    checks.push_back(std::move(one));
  }
  const FullCheck::Part* const decisive = check.decisive();
  nlohmann::json object = canary::to_json(decisive == nullptr ? Attempt{} : decisive->attempt);
  object["version"] = 1;
  object["health"] = canary::to_string(check.health());
  object["checks"] = std::move(checks);
  return fo::json::dump(object);
}

std::string as_text(const FullCheck& check) {
  std::string text(canary::to_string(check.health()));
  if (const FullCheck::Part* const decisive = check.decisive()) {
    const Attempt& attempt = decisive->attempt;
    text += fmt::format(": {}: {}", canary::to_string(decisive->step),
                        attempt.reason.empty() ? canary::to_string(attempt.outcome)
                                               : std::string_view(attempt.reason));
    if (const auto& evidence = attempt.evidence) {
      text += fmt::format(" (canary {}, position {}: expected {}, got {})", evidence->canary,
                          evidence->position, evidence->expected, evidence->got);
    }
  }
  text::TextTable table("lllrl");
  table.add({"check", "outcome", "canary", "seconds", "reason"});
  for (const FullCheck::Part& part : check.parts) {
    const Attempt& attempt = part.attempt;
    const auto cell = [](const std::string& value) {
      return value.empty() ? "-" : text::shown(value);
    };
    table.add(
        {std::string(canary::to_string(part.step)) + (attempt.uses_sampler ? ", sampler" : ""),
         std::string(canary::to_string(attempt.outcome)), cell(attempt.canary),
         fmt::format("{:.3f}", base::seconds_of(attempt.took)), cell(attempt.reason)});
  }
  return text::shown_message(text) + "\n" + table.text();
}

}  // namespace

int once(const Options& options) {
  if (options.workers.size() != 1 || options.canaries.size() != 1) {
    throw base::Error(base::ExitStatus::kUsage, "once: expected one --worker and one --canaries");
  }
  const canary::CanaryFile file = read_canaries(options.canaries.front());
  const std::string model = options.model.empty() ? file.model : options.model;
  const canary::EngineAddress engine =
      canary::make_engine_address(options.workers.front(), worker_tls(options),
                                  fleet::key_headers(options.worker_key_file), model);
  const FullCheck check = loop::run_to_end(canary::check_fully(engine, file, options.checker));
  if (options.common.json) {
    cli::print_line(as_json(check));
  } else {
    cli::print(as_text(check));
  }
  return static_cast<int>(check.health());
}

}  // namespace fo::fo_canary
