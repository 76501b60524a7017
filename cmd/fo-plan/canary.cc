#include "plan/canary.h"

#include <fmt/format.h>

#include "base/text.h"
#include "verbs.h"

namespace fo::fo_plan {
namespace {

Answer answer_canary(const Inputs& inputs) {
  const plan::CanaryChecks checks{.interval = inputs.seconds("interval"),
                                  .false_result = inputs.number("false-result"),
                                  .in_a_row = inputs.count("in-a-row")};
  const std::uint64_t workers = inputs.count("workers");
  const double drains = plan::false_drains_per_day(checks, workers);
  const plan::Seconds drift = plan::longest_drift_detection(checks);
  const plan::Seconds mismatch =
      plan::longest_mismatch_detection(checks.interval, inputs.seconds("vote"));
  Answer answer;
  answer.sentence = fmt::format(
      "The false drains of {} are {} per day = workers * 86400 s / interval * p^k; drift is "
      "detected within {} s = k * interval + 2 s, a mismatch within {} s = interval + 2 s + vote",
      base::counted(workers, "worker"), rounded(drains), rounded(drift.count()),
      rounded(mismatch.count()));
  answer.results = {{"false_drains_per_day", drains},
                    {"drift_detection_s", drift.count()},
                    {"mismatch_detection_s", mismatch.count()}};
  if (const std::optional<double> transient = inputs.find("transient")) {
    const double seen = plan::chance_to_see(plan::Seconds(*transient), checks.interval);
    answer.sentence +=
        fmt::format("; a fault of {} s is seen with a chance of {} = transient / interval",
                    rounded(*transient), rounded(seen));
    answer.results.push_back({"chance_to_see", seen});
  }
  answer.sentence += ".";
  if (const auto limit = inputs.find("max-drains")) answer.is_met = drains <= *limit;
  return answer;
}

}  // namespace

Verb canary() {
  return {
      .name = "canary",
      .description = "compute false drains, detection times and missed faults",
      .formula =
          "false drains per day = workers * 86400 s / interval * p^k; drift: k * interval + 2 s; "
          "mismatch: interval + 2 s + vote; chance to see a fault: transient / interval",
      .parameters = {{"false-result", Kind::kFraction,
                      "p: chance that a check of a good worker fails, after retries"},
                     {"interval", Kind::kDuration, "between checks", Need::kOptional, "30s"},
                     {"in-a-row", Kind::kCount, "k: failures in a row that drain a worker",
                      Need::kOptional, "3"},
                     {"workers", Kind::kCount, "workers that are checked", Need::kOptional, "1"},
                     {"vote", Kind::kDuration, "time of a vote", Need::kOptional, "1s"},
                     {"transient", Kind::kDuration, "length of a fault that may be missed",
                      Need::kOptional},
                     {"max-drains", Kind::kNumber, "the target: false drains per day",
                      Need::kOptional}},
      .answer = answer_canary};
}

}  // namespace fo::fo_plan
