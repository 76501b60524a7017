#include "canary/check/full_check.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/deadline.h"
#include "canary/judge/repetitions.h"
#include "loop/pause.h"
#include "os/file/random.h"

namespace fo::canary {
namespace {

using base::Deadline;
using boost::asio::awaitable;

// The interval of queries of the counters while requests run.
constexpr base::Duration kLookInterval = std::chrono::milliseconds(250);

EngineHealth health_of(const FullCheck::Part& part) {
  const Outcome outcome = part.attempt.outcome;
  switch (part.finding) {
    case Finding::kPass:
      return EngineHealth::kHealthy;
    case Finding::kNeutral:
      // Engines need not have metrics.
      return part.step == Step::kProgress ? EngineHealth::kHealthy : EngineHealth::kUnknown;
    case Finding::kWeak:
      return EngineHealth::kSuspicious;
    case Finding::kFault:
      return outcome == Outcome::kDown || outcome == Outcome::kHung || outcome == Outcome::kFailed
                 ? EngineHealth::kUnhealthy
                 : EngineHealth::kSuspicious;
    case Finding::kConviction:
      break;
  }
  return EngineHealth::kUnhealthy;
}

int badness_of(EngineHealth health) {
  constexpr std::array kFromBest{EngineHealth::kHealthy, EngineHealth::kUnknown,
                                 EngineHealth::kSuspicious, EngineHealth::kUnhealthy};
  return static_cast<int>(std::find(kFromBest.begin(), kFromBest.end(), health) -
                          kFromBest.begin());
}

// A part without repetitions.
FullCheck::Part part_of(Step step, Attempt attempt) {
  const Finding finding = attempt.outcome == Outcome::kPass      ? Finding::kPass
                          : attempt.outcome == Outcome::kNeutral ? Finding::kNeutral
                                                                 : Finding::kFault;
  return {.step = step, .finding = finding, .attempt = std::move(attempt)};
}

awaitable<Attempt> check_probe(EngineAddress engine, bool asks_health, AttemptRules rules) {
  const Deadline::Clock::time_point begin = Deadline::Clock::now();
  const Deadline deadline = Deadline::after(rules.probe_timeout);
  const Probe result = co_await probe(engine, asks_health, deadline);
  Attempt attempt{.outcome = outcome_of(result.error), .reason = result.reason};
  attempt.took = Deadline::Clock::now() - begin;
  co_return attempt;
}

// Queries the counters until they show a new token, no running request, or a hung engine.
awaitable<Attempt> check_progress(EngineAddress engine, CheckerOptions options) {
  Attempt attempt;
  ProgressWatch watch;
  const base::Duration begin = now().steady;
  for (;;) {
    const Deadline deadline = Deadline::after(options.rules.probe_timeout);
    const std::optional<EngineLoad> load = co_await ask_load(engine, deadline);
    const base::Duration at = now().steady;
    attempt.took = at - begin;
    if (!load) {
      attempt.outcome = Outcome::kNeutral;
      attempt.reason = "the engine gives no metrics";
      co_return attempt;
    }
    const Progress progress = watch.update(*load, at);
    if (progress.is_hung(options.hung_after)) {
      attempt.outcome = Outcome::kHung;
      attempt.reason = progress.reason();
      co_return attempt;
    }
    if (progress.has_moved || !progress.is_running) co_return attempt;
    co_await loop::pause_for(kLookInterval);
  }
}

awaitable<FullCheck::Part> check_content(EngineAddress engine, const CanaryFile& file,
                                         bool uses_sampler, CheckerOptions options) {
  using Next = Repetitions::Next;
  Repetitions repetitions(options.retries);
  // An engine that is checked only once has no baseline.
  Baseline none;
  const Canary* canary = &draw_canary(file, "", os::random_unit());
  for (;;) {
    const Attempt result = co_await attempt(engine, *canary, uses_sampler, options.rules, none);
    const Next next = repetitions.add(result);
    if (next == Next::kVote) repetitions.decide(Decision::kConviction);
    if (next == Next::kVote || next == Next::kDone) break;
    co_await loop::pause_for(options.retry_pause);
    if (next == Next::kAnother) canary = &draw_canary(file, canary->name, os::random_unit());
  }
  const Conclusion& conclusion = repetitions.conclusion();
  FullCheck::Part part{.step = Step::kContent, .finding = conclusion.finding};
  part.attempt = conclusion.attempt;
  co_return part;
}

}  // namespace

std::string_view to_string(EngineHealth health) {
  constexpr std::array<std::string_view, 4> kNames{"healthy", "suspicious", "unhealthy", "unknown"};
  return kNames.at(static_cast<std::size_t>(health));
}

const FullCheck::Part* FullCheck::decisive() const {
  const auto worst = std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return badness_of(health_of(a)) < badness_of(health_of(b));
  });
  if (worst == parts.end() || health_of(*worst) == EngineHealth::kHealthy) return nullptr;
  return &*worst;
}

EngineHealth FullCheck::health() const {
  const Part* const part = decisive();
  return part == nullptr ? EngineHealth::kHealthy : health_of(*part);
}

awaitable<FullCheck> check_fully(EngineAddress engine, const CanaryFile& file,
                                 CheckerOptions options) {
  FullCheck check;
  const auto add = [&](Step step, Attempt attempt) {
    check.parts.push_back(part_of(step, std::move(attempt)));
    return check.parts.back().finding;
  };
  for (const Step step : {Step::kConnect, Step::kHealth}) {
    Attempt attempt = co_await check_probe(engine, step == Step::kHealth, options.rules);
    if (add(step, std::move(attempt)) != Finding::kPass) co_return check;
  }
  Attempt progress = co_await check_progress(engine, options);
  if (add(Step::kProgress, std::move(progress)) == Finding::kFault) co_return check;
  Baseline none;
  Attempt token = co_await ask_token(engine, options.first_token, options.rules, none);
  if (add(Step::kToken, std::move(token)) == Finding::kFault) co_return check;
  for (const bool uses_sampler : {false, true}) {
    if (uses_sampler && !file.has_sampler) continue;
    FullCheck::Part part = co_await check_content(engine, file, uses_sampler, options);
    check.parts.push_back(std::move(part));
    if (check.health() == EngineHealth::kUnhealthy) break;
  }
  co_return check;
}

}  // namespace fo::canary
