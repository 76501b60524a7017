// The levels of degradation of a service whose capacity is less than its demand, by the ratio of
// the two. Pure: time is an argument.
//
//     level   entered below   left above   concurrency   premium   standard   best_effort deadlines
//       0           -              -            1            1          1           1           1
//       1         1.00           1.05          3/4           1          1           1           1
//       2         0.75           0.80          3/4           1          1           0           1
//       3         0.50           0.55          1/2           1         1/2          0           2
//       4         0.25           0.30          1/2           1          0           0           2
//
// A level is entered at once. It is left for the one before it when the ratio has been above its
// threshold for kLeaveAfter. Each level is a complete setting, so that any level can follow any
// other.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>

#include "base/units.h"

namespace fo::plan {

/// The tiers of requests, the most important one first.
inline constexpr std::size_t kPremium = 0;
inline constexpr std::size_t kStandard = 1;
inline constexpr std::size_t kBestEffort = 2;
inline constexpr std::size_t kTiers = 3;

struct DegradationSetting {
  /// Requests of a worker at a time, as a part of those at level 0.
  double concurrency_factor;
  /// The part of each tier's share that is admitted; 0: refused.
  std::array<double, kTiers> admitted_share;
  /// The factor of deadlines.
  double deadline_factor;
  bool operator==(const DegradationSetting&) const = default;
};

struct DegradationLevel {
  double enter_below;
  double leave_above;
  DegradationSetting setting;
};

/// Level 0 has no thresholds.
inline constexpr std::array<DegradationLevel, 5> kDegradationLevels{{
    {0, 0, {1, {1, 1, 1}, 1}},
    {1.00, 1.05, {0.75, {1, 1, 1}, 1}},
    {0.75, 0.80, {0.75, {1, 1, 0}, 1}},
    {0.50, 0.55, {0.5, {1, 0.5, 0}, 2}},
    {0.25, 0.30, {0.5, {1, 0, 0}, 2}},
}};

/// At the last level and below this ratio, premium requests are refused, too.
inline constexpr double kRefuseAllBelow = 0.05;

/// Time for which the ratio must stay above a level's threshold before the level is left.
inline constexpr base::Duration kLeaveAfter = std::chrono::seconds(10);

/// The numbers of the levels. Level 0 is that of kDegradationLevels; from level 1 on, enter_below
/// decreases from each level to the next, and leave_above is more than the level's own enter_below.
struct DegradationRules {
  std::array<DegradationLevel, 5> levels = kDegradationLevels;
  double refuse_all_below = kRefuseAllBelow;
  base::Duration leave_after = kLeaveAfter;
};

/// The level that is entered at this ratio from level 0. A ratio is at least 0; infinity stands for
/// no demand. Throws Error(kUsage) for others.
std::size_t level_entered_at(double ratio, const DegradationRules& rules = {});

/// The setting in force at `level` (0 to 4).
DegradationSetting setting_of(std::size_t level, double ratio, const DegradationRules& rules = {});

struct DegradationState {
  std::size_t level = 0;
  /// The time since which the ratio has been above the level's threshold; nullopt if it is not.
  std::optional<base::Duration> above_since;
};

/// The state after an observation of `ratio` at `now`, the time since any fixed point. `now` must
/// not decrease.
DegradationState next_degradation(const DegradationState& before, double ratio, base::Duration now,
                                  const DegradationRules& rules = {});

}  // namespace fo::plan
