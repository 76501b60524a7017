#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "canary/check/attempt.h"
#include "cli/output.h"
#include "commands.h"
#include "engine_options.h"
#include "json/dump.h"
#include "loop/pause.h"
#include "loop/run.h"
#include "os/random.h"

namespace fo::fo_canary {
namespace {

using boost::asio::awaitable;
using canary::Outcome;

constexpr base::Duration kRepeatAfter = std::chrono::seconds(1);

/// The statuses of monitoring plug-ins.
enum class Health { kHealthy, kSuspicious, kUnhealthy, kUnknown };

struct Check {
  Health health = Health::kUnknown;
  canary::Attempt attempt;
};

Health health_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return Health::kHealthy;
    case Outcome::kSlow:
    case Outcome::kDrift:
      return Health::kSuspicious;
    case Outcome::kNeutral:
      return Health::kUnknown;
    case Outcome::kMismatch:
    case Outcome::kDown:
    case Outcome::kHung:
    case Outcome::kFailed:
      break;
  }
  return Health::kUnhealthy;
}

// Returns the outcome of a check whose probe failed in this way.
Outcome outcome_of(canary::Trouble trouble) {
  switch (trouble) {
    case canary::Trouble::kDown:
      return Outcome::kDown;
    case canary::Trouble::kLate:
      return Outcome::kHung;
    case canary::Trouble::kRefused:
      return Outcome::kNeutral;
    default:
      return Outcome::kFailed;
  }
}

awaitable<Check> check(canary::EngineAddress engine, const canary::CanaryFile& file,
                       canary::AttemptRules rules, std::uint64_t retries) {
  Check result;
  const auto probe_by = base::Deadline::after(rules.probe_timeout);
  const canary::Probe probed = co_await canary::probe(engine, true, probe_by);
  if (probed.trouble != canary::Trouble::kNone) {
    result.attempt.reason = probed.reason;
    result.attempt.outcome = outcome_of(probed.trouble);
    result.health = health_of(result.attempt.outcome);
    co_return result;
  }
  canary::Baseline none;
  const canary::Canary* question = &canary::draw_canary(file, "", os::random_unit());
  bool was_wrong = false;
  for (std::uint64_t failures = 0;;) {
    result.attempt = co_await canary::attempt(engine, *question, false, rules, none);
    result.health = health_of(result.attempt.outcome);
    const bool is_wrong = result.attempt.outcome == Outcome::kMismatch;
    if (is_wrong && was_wrong) co_return result;
    if (!is_wrong && was_wrong) {
      // A wrong token that did not come again.
      result.health = Health::kSuspicious;
      result.attempt.reason = "a token differed, but not at its repetition";
      co_return result;
    }
    was_wrong = is_wrong;
    const bool is_failure =
        result.health == Health::kSuspicious || result.health == Health::kUnhealthy;
    if (!is_failure || (!is_wrong && failures++ == retries)) co_return result;
    co_await loop::pause_for(kRepeatAfter);
    if (!is_wrong) question = &canary::draw_canary(file, question->name, os::random_unit());
  }
}

}  // namespace

int once(const Options& options) {
  if (options.workers.size() != 1 || options.canaries.size() != 1) {
    throw base::Error(base::ExitStatus::kUsage, "once: expected one --worker and one --canaries");
  }
  const canary::CanaryFile file = read_canaries(options.canaries.front());
  const std::string model = options.model.empty() ? file.model : options.model;
  const canary::EngineAddress engine = canary::make_engine_address(
      options.workers.front(), worker_tls(options), worker_headers(options), model);
  const Check result = loop::run_to_end(check(engine, file, options.rules, options.retries));
  constexpr std::string_view kNames[] = {"healthy", "suspicious", "unhealthy", "unknown"};
  const std::string_view name = kNames[static_cast<int>(result.health)];
  const canary::Attempt& attempt = result.attempt;
  if (options.common.json) {
    nlohmann::json object = {{"version", 1},
                             {"health", name},
                             {"outcome", canary::to_string(attempt.outcome)},
                             {"canary", attempt.canary},
                             {"reason", attempt.reason},
                             {"evidence", nullptr}};
    if (attempt.evidence) object["evidence"] = fleet::to_json(*attempt.evidence);
    cli::print_line(fo::json::dump(object));
  } else {
    std::string line(name);
    if (!attempt.reason.empty()) line += ": " + attempt.reason;
    if (attempt.evidence) {
      line += " (canary " + attempt.evidence->canary + ", position " +
              std::to_string(attempt.evidence->position) + ": expected " +
              attempt.evidence->expected + ", got " + attempt.evidence->got + ")";
    }
    cli::print_line(line);
  }
  return static_cast<int>(result.health);
}

}  // namespace fo::fo_canary
