#include "plan/capacity.h"

#include <fmt/format.h>

#include "base/text.h"
#include "verbs.h"

namespace fo::fo_plan {
namespace {

Answer answer_capacity(const Inputs& inputs) {
  const plan::Seconds tpot = inputs.seconds("tpot");
  const plan::Seconds residence =
      plan::residence_time(inputs.seconds("ttft"), inputs.number("tokens"), tpot);
  const std::uint64_t concurrency =
      plan::concurrency_of({.kv_tokens = inputs.number("kv-tokens"),
                            .sequence_tokens = inputs.number("sequence"),
                            .slots = inputs.count("slots"),
                            .measured = inputs.measured()},
                           tpot);
  const std::optional<double> rate = inputs.find("rate");
  std::optional<std::uint64_t> needed;
  if (rate) needed = plan::replicas_needed(*rate, concurrency, residence);
  const std::uint64_t replicas =
      inputs.find("replicas") ? inputs.count("replicas") : needed.value_or(1);
  const double carried = plan::carried_rate(replicas, concurrency, residence);

  Answer answer;
  answer.sentence = fmt::format(
      "The rate of {} is {} requests/s = replicas * concurrency / W (Little's law), with {} at a "
      "time in each and W = ttft + tokens * tpot = {} s",
      base::counted(replicas, "replica"), rounded(carried), base::counted(concurrency, "request"),
      rounded(residence.count()));
  if (rate) {
    answer.sentence += needed ? fmt::format("; a rate of {} requests/s needs {}", *rate,
                                            base::counted(*needed, "replica"))
                              : fmt::format("; no number of replicas carries {} requests/s", *rate);
    answer.is_met = needed && replicas >= *needed;
  }
  answer.sentence += ".";
  answer.results = {{"carried_rate", carried},
                    {"rate_per_replica", carried / static_cast<double>(replicas)},
                    {"concurrency", static_cast<double>(concurrency)},
                    {"residence_s", residence.count()}};
  if (rate) {
    answer.results.push_back({"replicas_needed", needed});
    answer.results.push_back({"capacity_ratio", carried / *rate});
  }
  return answer;
}

}  // namespace

Verb capacity() {
  return {
      .name = "capacity",
      .description = "compute the rate that replicas carry, or the replicas for a rate",
      .formula =
          "rate = replicas * concurrency / W, W = ttft + tokens * tpot (Little); concurrency = "
          "min(kv-tokens / sequence, slots, measured within tpot)",
      .parameters = {{"ttft", Kind::kDuration, "limit of the time to first token"},
                     {"tpot", Kind::kDuration, "limit of the time per output token"},
                     {"tokens", Kind::kNumber, "mean output tokens of a request"},
                     {"kv-tokens", Kind::kNumber, "tokens in a replica's whole KV cache"},
                     {"sequence", Kind::kNumber, "mean tokens of a sequence, prompt and answer"},
                     {"slots", Kind::kCount, "requests that a replica serves at a time",
                      Need::kOptional, "256"},
                     {"measured", Kind::kMeasurements, "TPOT by concurrency: 1:12ms,32:25ms",
                      Need::kOptional},
                     {"replicas", Kind::kCount, "replicas (default: as many as --rate needs, or 1)",
                      Need::kOptional},
                     {"rate", Kind::kNumber, "the target: requests per second", Need::kOptional}},
      .answer = answer_capacity};
}

}  // namespace fo::fo_plan
