#include "plan/canary.h"

#include <fmt/format.h>

#include "base/text.h"
#include "verbs.h"

namespace fo::fo_plan {
namespace {

// Adds the cost of the questions for a worker to the answer.
void add_cost(const Inputs& inputs, Answer& answer) {
  const plan::Seconds interval = inputs.seconds("interval");
  const plan::CanaryQuestion question{.prompt = inputs.count("prompt"),
                                      .answer = inputs.count("answer")};
  const double tokens = plan::question_tokens_per_minute(interval, question);
  answer.sentence += fmt::format(
      "; a worker computes {} tokens per minute for them = 60 s / interval * 1.25 * (prompt + "
      "answer)",
      rounded(tokens));
  answer.results.push_back({"tokens_per_minute", tokens});
  if (!inputs.find("prefill")) return;
  const plan::Seconds time =
      plan::question_time(question, inputs.number("prefill"), inputs.seconds("tpot"));
  const double share = plan::share_of_questions(interval, time);
  answer.sentence += fmt::format(
      ", in {} s each = prompt / prefill + answer * tpot, and a share of {} of its time = "
      "1.25 * that / interval",
      rounded(time.count()), rounded(share));
  answer.results.push_back({"question_s", time.count()});
  answer.results.push_back({"share_of_time", share});
}

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
        fmt::format("; a fault of {} s is detected with a chance of {} = transient / interval",
                    rounded(*transient), rounded(seen));
    answer.results.push_back({"chance_to_see", seen});
  }
  if (inputs.find("prompt")) add_cost(inputs, answer);
  answer.sentence += ".";
  if (const auto limit = inputs.find("max-drains")) answer.is_met = drains <= *limit;
  return answer;
}

}  // namespace

Verb canary() {
  return {
      .name = "canary",
      .description = "compute false drains, detection times, missed faults and costs",
      .formula =
          "false drains per day = workers * 86400 s / interval * p^k; drift: k * interval + 2 s; "
          "mismatch: interval + 2 s + vote; chance to detect a fault: transient / interval; "
          "tokens per minute = 60 s / interval * 1.25 * (prompt + answer); "
          "share of time = 1.25 * (prompt / prefill + answer * tpot) / interval",
      .parameters =
          {{"false-result", Kind::kFraction,
            "p: chance that a check of a good worker fails, after retries"},
           {"interval", Kind::kDuration, "between checks", Need::kOptional, "30s"},
           {"in-a-row", Kind::kCount, "k: failures in a row that drain a worker", Need::kOptional,
            "3"},
           {"workers", Kind::kCount, "workers that are checked", Need::kOptional, "1"},
           {"vote", Kind::kDuration, "time of a vote", Need::kOptional, "1s"},
           {"transient", Kind::kDuration, "length of a fault that may be missed", Need::kOptional},
           {"prompt", Kind::kCount, "tokens of a question", Need::kOptional},
           {"answer", Kind::kCount, "tokens of its answer", Need::kOptional, "16", {"prompt"}},
           {"prefill",
            Kind::kNumber,
            "tokens per second that a worker computes",
            Need::kOptional,
            nullptr,
            {"prompt", "tpot"}},
           {"tpot",
            Kind::kDuration,
            "time per output token",
            Need::kOptional,
            nullptr,
            {"prompt", "prefill"}},
           {"max-drains", Kind::kNumber, "the target: false drains per day", Need::kOptional}},
      .answer = answer_canary};
}

}  // namespace fo::fo_plan
