#include "canary/check/attempt.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace fo::canary {
namespace {

using base::Deadline;
using base::seconds_of;
using boost::asio::awaitable;

constexpr char kPing[] = "The answer to this question is";

}  // namespace

std::string_view to_string(Outcome outcome) {
  constexpr std::array<std::string_view, std::size(kOutcomes)> kNames{
      "pass", "neutral", "slow", "drift", "mismatch", "down", "hung", "failed"};
  return kNames.at(static_cast<std::size_t>(outcome));
}

Outcome outcome_of(AskError error) {
  switch (error) {
    case AskError::kNone:
      return Outcome::kPass;
    case AskError::kDown:
      return Outcome::kDown;
    case AskError::kLate:
      return Outcome::kHung;
    case AskError::kBusy:
    case AskError::kRefused:
    case AskError::kUnnamed:
      return Outcome::kNeutral;
    case AskError::kBroken:
      break;
  }
  return Outcome::kFailed;
}

nlohmann::json to_json(const Attempt& attempt) {
  nlohmann::json object = {{"outcome", to_string(attempt.outcome)},
                           {"canary", attempt.canary},
                           {"sampler", attempt.uses_sampler},
                           {"seconds", seconds_of(attempt.took)},
                           {"reason", attempt.reason},
                           {"evidence", nullptr}};
  if (attempt.evidence) object["evidence"] = fleet::to_json(*attempt.evidence);
  return object;
}

Attempt judge(const Canary& canary, const Reply& reply, bool uses_sampler, double tolerance) {
  Attempt attempt{.canary = canary.name, .took = reply.whole, .uses_sampler = uses_sampler};
  attempt.reason = reply.reason;
  attempt.outcome = outcome_of(reply.error);
  if (reply.error != AskError::kNone) return attempt;
  const Comparison comparison = uses_sampler ? compare_tokens(canary, reply.answer.ids())
                                             : compare(canary, reply.answer, tolerance);
  attempt.evidence = comparison.evidence;
  switch (comparison.match) {
    case Match::kSame:
      break;
    case Match::kUncertain:
      attempt.outcome = Outcome::kNeutral;
      attempt.reason = "another token, where good engines may differ";
      break;
    case Match::kDrift:
      attempt.outcome = Outcome::kDrift;
      attempt.reason = "a log-probability differs";
      break;
    case Match::kMismatch:
      attempt.outcome = Outcome::kMismatch;
      attempt.reason = "a token differs";
      attempt.tokens = reply.answer.ids();
      break;
  }
  return attempt;
}

awaitable<Attempt> attempt(EngineAddress engine, const Canary& canary, bool uses_sampler,
                           AttemptRules rules, Baseline& baseline) {
  const Deadline before_by = Deadline::after(rules.probe_timeout);
  const std::optional<EngineLoad> before = co_await ask_load(engine, before_by);
  Question question{.prompt = canary.prompt, .max_tokens = canary.max_tokens};
  question.has_logprobs = !uses_sampler;
  question.uses_sampler = uses_sampler;
  const Deadline deadline = Deadline::after(rules.timeout);
  const Reply reply = co_await ask(engine, std::move(question), rules.timeout, deadline);
  Attempt result = judge(canary, reply, uses_sampler, rules.tolerance);
  const Deadline after_by = Deadline::after(rules.probe_timeout);
  const std::optional<EngineLoad> after = co_await ask_load(engine, after_by);
  if (result.outcome == Outcome::kHung && after && after->has_queue()) {
    result.outcome = Outcome::kNeutral;
    result.reason = "the question waited in the engine's queue";
  }
  const bool was_idle = before && after && before->is_idle() && after->is_idle();
  if (result.outcome != Outcome::kPass || !was_idle || canary.time <= base::Duration(0)) {
    co_return result;
  }
  const double usual = seconds_of(canary.time);
  const double took = seconds_of(reply.whole) / usual;
  const double excess = (took - baseline.average) * usual;
  if (baseline.is_exceeded(took, rules.slow_factor) && excess > seconds_of(rules.slow_excess)) {
    result.outcome = Outcome::kSlow;
    result.reason = "it took over " + std::to_string(static_cast<int>(rules.slow_factor)) +
                    " times as long as usual";
  } else {
    baseline.add(took);
  }
  co_return result;
}

awaitable<Attempt> ask_token(EngineAddress engine, base::Duration limit, AttemptRules rules,
                             Baseline& baseline) {
  Question question{.text = kPing};
  const Deadline deadline = Deadline::after(limit);
  const Reply reply = co_await ask(engine, std::move(question), limit, deadline);
  const Deadline probe_by = Deadline::after(rules.probe_timeout);
  const std::optional<EngineLoad> after = co_await ask_load(engine, probe_by);
  Attempt attempt{.outcome = outcome_of(reply.error), .reason = reply.reason, .took = reply.whole};
  if (reply.error == AskError::kNone) baseline.add(seconds_of(reply.first_token));
  if (reply.error == AskError::kUnnamed) attempt.outcome = Outcome::kPass;
  if (attempt.outcome == Outcome::kHung && after && after->has_queue()) {
    attempt.outcome = Outcome::kNeutral;
  }
  co_return attempt;
}

const Canary& draw_canary(const CanaryFile& file, const std::string& last, double random) {
  const std::size_t size = file.canaries.size();
  const std::size_t index =
      std::min(static_cast<std::size_t>(random * static_cast<double>(size)), size - 1);
  const Canary& drawn = file.canaries[index];
  return drawn.name == last ? file.canaries[(index + 1) % size] : drawn;
}

}  // namespace fo::canary
