#include "plan/degradation.h"

#include <limits>

#include "plan/argument.h"

namespace fo::plan {
namespace {

void check_ratio(double ratio) {
  check_range("ratio", ratio, 0, std::numeric_limits<double>::infinity());
}

void check_level(std::size_t level) {
  check_range("level", static_cast<double>(level), 0,
              static_cast<double>(kDegradationLevels.size() - 1));
}

}  // namespace

std::size_t level_entered_at(double ratio, const DegradationRules& rules) {
  check_ratio(ratio);
  std::size_t level = rules.levels.size() - 1;
  while (level > 0 && ratio >= rules.levels[level].enter_below) --level;
  return level;
}

DegradationSetting setting_of(std::size_t level, double ratio, const DegradationRules& rules) {
  check_level(level);
  check_ratio(ratio);
  DegradationSetting setting = rules.levels[level].setting;
  if (level + 1 == rules.levels.size() && ratio < rules.refuse_all_below)
    setting.admitted_share = {};
  return setting;
}

DegradationState next_degradation(const DegradationState& before, double ratio, base::Duration now,
                                  const DegradationRules& rules) {
  check_level(before.level);
  const std::size_t entered = level_entered_at(ratio, rules);
  if (entered > before.level) return {.level = entered, .above_since = std::nullopt};
  if (before.level == 0 || ratio <= rules.levels[before.level].leave_above) {
    return {.level = before.level, .above_since = std::nullopt};
  }
  const base::Duration since = before.above_since.value_or(now);
  if (now - since < rules.leave_after) return {.level = before.level, .above_since = since};
  // The threshold of the level before it is another one: its time begins now.
  const std::size_t level = before.level - 1;
  const bool is_above = level > 0 && ratio > rules.levels[level].leave_above;
  return {.level = level, .above_since = is_above ? std::optional(now) : std::nullopt};
}

}  // namespace fo::plan
