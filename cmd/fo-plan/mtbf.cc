#include <fmt/format.h>

#include "base/text.h"
#include "plan/digits.h"
#include "plan/failures.h"
#include "verbs.h"

namespace fo::fo_plan {
namespace {

Answer answer_mtbf(const Inputs& inputs) {
  const std::uint64_t gpus = inputs.count("gpus");
  const std::uint64_t tp = inputs.count("tp");
  const double afr = inputs.number("afr");
  const plan::Hours between = plan::time_between_failures(gpus, afr);
  const std::uint64_t groups = plan::count_groups(gpus, tp);
  const double chance = plan::group_failure_chance_per_day(tp, afr);
  const double per_day = plan::group_failures_per_day(gpus, tp, afr);
  Answer answer;
  answer.sentence = fmt::format(
      "One of {} fails every {} h ({} days), MTBF = 8760 h / (gpus * afr); of their {} of {}, {} "
      "fail per day, each with a chance of {} = 1 - (1 - afr/365)^tp.",
      base::counted(gpus, "GPU"), rounded(between.count()), rounded(plan::Days(between).count()),
      base::counted(groups, "group"), tp, rounded(per_day), rounded(chance));
  answer.results = {{"mtbf_hours", between.count()},
                    {"gpu_failures_per_day", plan::Days(1) / between},
                    {"groups", static_cast<double>(groups)},
                    {"group_failure_chance_per_day", chance},
                    {"group_failures_per_day", per_day}};
  if (inputs.find("at-least")) answer.is_met = between >= inputs.seconds("at-least");
  return answer;
}

std::string published(const Inputs& inputs) {
  const plan::TrainingRun& run = plan::kLlama3Run;
  const double afr = plan::afr_of(run);
  const std::uint64_t gpus = inputs.count("gpus");
  return fmt::format(
      "For comparison, Llama 3 405B on {} H100 in {} days (arXiv 2407.21783, table 5): {} "
      "unplanned stops, of which {} by faulty GPUs, {} HBM, {} SRAM, {} GSP and {} silent "
      "corruptions; all GPU causes together are {} per GPU and year, at which one of {} fails "
      "every {} h, and one silent corruption in {} GPU-days.",
      run.gpus, run.days, run.interruptions, run.faulty_gpu, run.hbm, run.sram, run.gsp,
      run.silent_corruptions, plan::to_digits(afr, 2), base::counted(gpus, "GPU"),
      rounded(plan::time_between_failures(gpus, afr).count()), plan::gpu_days_per_corruption(run));
}

}  // namespace

Verb mtbf() {
  return {.name = "mtbf",
          .description = "compute how often GPUs and groups of them fail",
          .formula = "MTBF = 8760 h / (gpus * afr); group per day: 1 - (1 - afr/365)^tp",
          .parameters = {{"gpus", Kind::kCount, "GPUs in all"},
                         {"afr", Kind::kFraction, "failures per GPU and year"},
                         {"tp", Kind::kCount, "GPUs of a group", Need::kOptional, "8"},
                         {"at-least", Kind::kDuration, "the target: at least this MTBF",
                          Need::kOptional}},
          .answer = answer_mtbf,
          .note = published};
}

}  // namespace fo::fo_plan
