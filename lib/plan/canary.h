// Computes how many faults periodic checks of an engine's answers detect, how soon, how often they
// are wrong, and their cost. Pure.
#pragma once

#include <cstdint>

#include "plan/times.h"

namespace fo::plan {

/// The checks of one worker.
struct CanaryChecks {
  /// More than 0, at most a day.
  Seconds interval;
  /// The chance that a check of a good worker fails, after its retries: 0 to 1.
  double false_result;
  /// The worker is drained after this many failures in a row: 1 to 1000.
  std::uint64_t in_a_row;
};

/// A failed check is repeated twice, after a second each.
inline constexpr Seconds kRetryTime{2};

/// Checks per day: 86400 s / interval. Throws Error(kUsage) for an interval out of its range; the
/// functions below also for the other values.
double checks_per_day(Seconds interval);

/// The expected false drains of good workers per day: workers * checks_per_day *
/// false_result^in_a_row, if results are independent. Failures with a common cause are not, and are
/// more frequent.
double false_drains_per_day(const CanaryChecks& checks, std::uint64_t workers = 1);

/// The expected number of checks until a breaker opens if it counts all failures and successes do
/// not reset it: in_a_row / false_result, which must be more than 0.
double checks_until_unreset_breaker_opens(const CanaryChecks& checks);

/// Returns the longest time for which a lasting fault stays undetected: in_a_row * interval + 2 s,
/// because the fault can begin just after a check, and the last check is repeated.
Seconds longest_drift_detection(const CanaryChecks& checks);

/// Returns the longest time for which a wrong token stays undetected: interval + 2 s + vote, the
/// time that the other workers need to answer the same question (0 to a day).
Seconds longest_mismatch_detection(Seconds interval, Seconds vote);

/// The chance that a check meets a fault that lasts for `transient` (0 to a day): transient /
/// interval, at most 1.
double chance_to_see(Seconds transient, Seconds interval);

/// A question to a worker.
struct CanaryQuestion {
  /// Tokens, each 1 to 1e12.
  std::uint64_t prompt;
  std::uint64_t answer;
};

/// The share of checks in which a second question runs the sampler.
inline constexpr double kSamplerShare = 0.25;

/// The tokens that a worker computes in a minute for its checks: 60 s / interval * 1.25 * (prompt +
/// answer). Repetitions of failed checks and votes are not included.
double question_tokens_per_minute(Seconds interval, const CanaryQuestion& question);

/// The time that a question takes on an idle worker: prompt / prefill + answer * tpot, where
/// `prefill` is in tokens per second (more than 0), and `tpot` the time per token of an answer (0
/// to a day).
Seconds question_time(const CanaryQuestion& question, double prefill, Seconds tpot);

/// The share of its time in which a worker answers questions, one at a time: 1.25 * `time` /
/// interval. It is over 1 if they do not end within the interval.
double share_of_questions(Seconds interval, Seconds time);

}  // namespace fo::plan
