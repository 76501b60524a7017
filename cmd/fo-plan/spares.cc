#include "plan/spares.h"

#include <fmt/format.h>

#include "base/text.h"
#include "verbs.h"

namespace fo::fo_plan {
namespace {

Answer answer_spares(const Inputs& inputs) {
  const std::uint64_t groups = inputs.count("groups");
  const std::uint64_t tp = inputs.count("tp");
  const plan::Hours repair = inputs.seconds("repair");
  const double limit = inputs.number("shortfall");
  const double mean = plan::mean_groups_down(groups, tp, inputs.number("afr"), repair);
  const std::uint64_t needed = plan::spares_needed(mean, limit);
  const double given = inputs.find("spares").value_or(static_cast<double>(needed));
  const auto spares = static_cast<std::uint64_t>(given);
  const double shortfall = plan::poisson_tail(mean, spares);
  Answer answer;
  answer.sentence = fmt::format(
      "{} of {} need {} ({}) for a chance of at most {} that more are down at a time, by a "
      "Poisson distribution with mean groups * tp * afr * repair / 8760 h = {}; with {} the "
      "chance is {}.",
      base::counted(groups, "group"), base::counted(tp, "GPU"),
      base::counted(needed, "spare group"), base::counted(needed * tp, "GPU"), limit, rounded(mean),
      base::counted(spares, "spare group"), rounded(shortfall));
  answer.results = {{"spares_needed", static_cast<double>(needed)},
                    {"spare_gpus", static_cast<double>(needed * tp)},
                    {"mean_groups_down", mean},
                    {"shortfall_chance", shortfall}};
  if (inputs.find("spares")) answer.is_met = shortfall <= limit;
  return answer;
}

}  // namespace

Verb spares() {
  return {
      .name = "spares",
      .description = "compute how many spare groups cover those in repair",
      .formula = "P(more down than spares): Poisson with mean groups * tp * afr * repair / 8760 h",
      .parameters = {{"groups", Kind::kCount, "groups that serve"},
                     {"tp", Kind::kCount, "GPUs of a group", Need::kOptional, "8"},
                     {"afr", Kind::kFraction, "failures per GPU and year"},
                     {"repair", Kind::kDuration, "mean time until a group serves again"},
                     {"shortfall", Kind::kFraction, "highest chance of too few spares"},
                     {"spares", Kind::kCount, "the target: this number suffices", Need::kOptional}},
      .answer = answer_spares};
}

}  // namespace fo::fo_plan
