#include "plan/canary.h"

#include <algorithm>
#include <cmath>

#include "plan/argument.h"

namespace fo::plan {
namespace {

void check(const CanaryChecks& checks) {
  check_time("interval", checks.interval);
  check_range("false-result", checks.false_result, 0, 1);
  check_count("in-a-row", checks.in_a_row, 1000);
}

void check(const CanaryQuestion& question) {
  check_count("prompt", question.prompt);
  check_count("answer", question.answer);
}

}  // namespace

double checks_per_day(Seconds interval) {
  check_time("interval", interval);
  return kDay / interval;
}

double false_drains_per_day(const CanaryChecks& checks, std::uint64_t workers) {
  check(checks);
  check_count("workers", workers);
  return static_cast<double>(workers) * checks_per_day(checks.interval) *
         std::pow(checks.false_result, static_cast<double>(checks.in_a_row));
}

double checks_until_unreset_breaker_opens(const CanaryChecks& checks) {
  check(checks);
  check_positive("false-result", checks.false_result, 1);
  return static_cast<double>(checks.in_a_row) / checks.false_result;
}

Seconds longest_drift_detection(const CanaryChecks& checks) {
  check(checks);
  return static_cast<double>(checks.in_a_row) * checks.interval + kRetryTime;
}

Seconds longest_mismatch_detection(Seconds interval, Seconds vote) {
  check_time("interval", interval);
  check_time("vote", vote, 0);
  return interval + kRetryTime + vote;
}

double chance_to_see(Seconds transient, Seconds interval) {
  check_time("transient", transient, 0);
  check_time("interval", interval);
  return std::min(1.0, transient / interval);
}

double question_tokens_per_minute(Seconds interval, const CanaryQuestion& question) {
  check(question);
  check_time("interval", interval);
  const double tokens = static_cast<double>(question.prompt) + static_cast<double>(question.answer);
  return Seconds(60) / interval * (1 + kSamplerShare) * tokens;
}

Seconds question_time(const CanaryQuestion& question, double prefill, Seconds tpot) {
  check(question);
  check_positive("prefill", prefill);
  check_time("tpot", tpot, 0);
  return Seconds(static_cast<double>(question.prompt) / prefill) +
         static_cast<double>(question.answer) * tpot;
}

double share_of_questions(Seconds interval, Seconds time) {
  check_time("interval", interval);
  return (1 + kSamplerShare) * (time / interval);
}

}  // namespace fo::plan
