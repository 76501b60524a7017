// Asks one engine the question of one canary, and judges the answer.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canary/check/baseline.h"
#include "canary/check/comparison.h"
#include "canary/check/engine_client.h"

namespace fo::canary {

enum class Outcome { kPass, kNeutral, kSlow, kDrift, kMismatch, kDown, kHung, kFailed };
inline constexpr Outcome kOutcomes[] = {Outcome::kPass,  Outcome::kNeutral,  Outcome::kSlow,
                                        Outcome::kDrift, Outcome::kMismatch, Outcome::kDown,
                                        Outcome::kHung,  Outcome::kFailed};
std::string_view to_string(Outcome outcome);
/// Returns the outcome of a check that had this error; kPass for kNone.
Outcome outcome_of(AskError error);

/// A check, or one of its attempts.
struct Attempt {
  Outcome outcome = Outcome::kPass;
  std::string canary = {};
  std::string reason = {};
  std::optional<fleet::Evidence> evidence = {};
  base::Duration took{};
  /// The tokens of the answer; only for kMismatch.
  std::vector<TokenId> tokens = {};
  bool uses_sampler = false;
};

nlohmann::json to_json(const Attempt& attempt);

struct AttemptRules {
  /// A log-probability drifts if it differs by more than the canary's spread plus this.
  double tolerance = 0.05;
  /// Time limit of a whole answer.
  base::Duration timeout = std::chrono::seconds(20);
  base::Duration probe_timeout = std::chrono::seconds(1);
  /// An answer is slow if it takes over this factor times the baseline, and exceeds the baseline by
  /// more than slow_excess.
  double slow_factor = 3;
  /// An answer that exceeds the baseline by less is not slow, because the client may have been
  /// busy.
  base::Duration slow_excess = std::chrono::milliseconds(250);
};

/// Judges a reply, without regard to its duration.
Attempt judge(const Canary& canary, const Reply& reply, bool uses_sampler, double tolerance);

/// Asks the question of `canary`. The duration is judged, and added to the baseline, only if the
/// engine was idle before and after. A timeout is kNeutral if requests wait in the engine's queue.
boost::asio::awaitable<Attempt> attempt(EngineAddress engine, const Canary& canary,
                                        bool uses_sampler, AttemptRules rules, Baseline& baseline);

/// Asks an idle engine for one token. Any token passes, and its time is added to the baseline, in
/// seconds. Without a token within `limit` the outcome is kHung, or kNeutral if requests wait in
/// the engine's queue.
boost::asio::awaitable<Attempt> ask_token(EngineAddress engine, base::Duration limit,
                                          AttemptRules rules, Baseline& baseline);

/// Draws one of the canaries; not the one named `last`, unless it is the only one. `random` is
/// uniform in [0, 1).
const Canary& draw_canary(const CanaryFile& file, const std::string& last, double random);

}  // namespace fo::canary
