// The limits of a whole check of a worker, with its repetitions.
#pragma once

#include "canary/check/attempt.h"
#include "plan/canary.h"

namespace fo::canary {

struct CheckerOptions {
  AttemptRules rules;
  /// Repetitions of a failed check, and the pause before each.
  unsigned retries = 2;
  base::Duration retry_pause = std::chrono::seconds(1);
  /// Time for which requests may run without any token.
  base::Duration hung_after = std::chrono::seconds(30);
  /// Lower limit of the time allowed for a first token; a slow worker gets 5 times its baseline.
  base::Duration first_token = std::chrono::seconds(3);
  /// The part of the checks of the content that run the sampler, too.
  double sampler_part = plan::kSamplerShare;

  /// Returns the longest time that a check of the content can take, a vote included.
  [[nodiscard]] base::Duration longest() const {
    // The longest check: a question passes at its last repetition; the sampler then gives wrong
    // tokens at its last repetition; they are repeated as often as possible; and a vote follows.
    return static_cast<base::Duration::rep>(3 * retries + 4) *
           (rules.timeout + 2 * rules.probe_timeout + retry_pause);
  }
};

}  // namespace fo::canary
