#include <fmt/format.h>

#include "base/units.h"
#include "plan/degradation.h"
#include "verbs.h"

namespace fo::fo_plan {
namespace {

using plan::DegradationState;

std::string share(double admitted) {
  if (admitted == 0) return "refused";
  return admitted == 1 ? "admitted" : fmt::format("admitted at {} of its share", admitted);
}

// The level that a lasting ratio leads to, and the seconds until then.
struct Settled {
  std::size_t level;
  int seconds;
};

Settled settle(DegradationState state, double ratio) {
  Settled settled{.level = state.level, .seconds = 0};
  for (int second = 0; second <= 60; ++second) {
    state = plan::next_degradation(state, ratio, std::chrono::seconds(second));
    if (state.level != settled.level) settled = {.level = state.level, .seconds = second};
  }
  return settled;
}

Answer answer_degrade(const Inputs& inputs) {
  const double ratio = inputs.number("ratio");
  const DegradationState before{.level = inputs.count("level"), .above_since = std::nullopt};
  const DegradationState now = plan::next_degradation(before, ratio, base::Duration::zero());
  const plan::DegradationSetting setting = plan::setting_of(now.level, ratio);
  const Settled settled = settle(now, ratio);
  Answer answer;
  answer.sentence = fmt::format(
      "At ratio {} the level is {}: concurrency {}, premium {}, standard {}, best_effort {}, "
      "deadlines times {}; ",
      ratio, now.level, setting.concurrency_factor, share(setting.admitted_share[plan::kPremium]),
      share(setting.admitted_share[plan::kStandard]),
      share(setting.admitted_share[plan::kBestEffort]), setting.deadline_factor);
  if (now.level == 0) {
    answer.sentence +=
        fmt::format("level 1 is entered below {}", plan::kDegradationLevels[1].enter_below);
  } else {
    const plan::DegradationLevel& level = plan::kDegradationLevels[now.level];
    answer.sentence +=
        fmt::format("it is entered below {}, and left after {} above {}", level.enter_below,
                    base::format_duration(plan::kLeaveAfter), level.leave_above);
  }
  if (settled.level != now.level) {
    answer.sentence +=
        fmt::format("; if this ratio lasts, level {} after {} s", settled.level, settled.seconds);
  }
  answer.sentence += " (table of levels by capacity / demand).";
  answer.results = {{"next_level", static_cast<double>(now.level)},
                    {"concurrency_factor", setting.concurrency_factor},
                    {"premium_share", setting.admitted_share[plan::kPremium]},
                    {"standard_share", setting.admitted_share[plan::kStandard]},
                    {"best_effort_share", setting.admitted_share[plan::kBestEffort]},
                    {"deadline_factor", setting.deadline_factor},
                    {"settled_level", static_cast<double>(settled.level)},
                    {"settled_after_s", settled.seconds}};
  answer.is_met = now.level == 0;
  return answer;
}

}  // namespace

Verb degrade() {
  return {
      .name = "degrade",
      .description = "show the level of degradation for a ratio of capacity to demand",
      .formula =
          "level entered at once below 1, 0.75, 0.5, 0.25; left after 10 s above 1.05, 0.8, "
          "0.55, 0.3",
      .parameters = {{"ratio", Kind::kNumber, "capacity / demand"},
                     {"level", Kind::kCount, "the present level, 0 to 4", Need::kOptional, "0"}},
      .answer = answer_degrade};
}

}  // namespace fo::fo_plan
