#include "plan/degradation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "support/failure.h"

namespace fo::plan {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::failure_of;
using testing::ElementsAre;

constexpr std::size_t kLevels = kDegradationLevels.size();

TEST(Degradation, EntersTheLevelOfTheTable) {
  EXPECT_EQ(level_entered_at(std::numeric_limits<double>::infinity()), 0u);
  EXPECT_EQ(level_entered_at(1.0), 0u);
  EXPECT_EQ(level_entered_at(0.999), 1u);
  EXPECT_EQ(level_entered_at(0.75), 1u);
  EXPECT_EQ(level_entered_at(0.749), 2u);
  EXPECT_EQ(level_entered_at(0.5), 2u);
  EXPECT_EQ(level_entered_at(0.499), 3u);
  EXPECT_EQ(level_entered_at(0.25), 3u);
  EXPECT_EQ(level_entered_at(0.249), 4u);
  EXPECT_EQ(level_entered_at(0), 4u);
}

TEST(Degradation, SettingsAreThoseOfTheTable) {
  EXPECT_EQ(setting_of(0, 1).concurrency_factor, 1);
  EXPECT_THAT(setting_of(1, 0.8).admitted_share, ElementsAre(1, 1, 1));
  EXPECT_EQ(setting_of(1, 0.8).concurrency_factor, 0.75);
  EXPECT_THAT(setting_of(2, 0.6).admitted_share, ElementsAre(1, 1, 0));
  EXPECT_THAT(setting_of(3, 0.3).admitted_share, ElementsAre(1, 0.5, 0));
  EXPECT_EQ(setting_of(3, 0.3).deadline_factor, 2);
  EXPECT_THAT(setting_of(4, 0.05).admitted_share, ElementsAre(1, 0, 0));
  EXPECT_THAT(setting_of(4, 0.049).admitted_share, ElementsAre(0, 0, 0));
}

TEST(Degradation, LowerRatiosNeverAdmitMore) {
  for (double ratio = 0; ratio < 1.2; ratio += 0.001) {
    const std::size_t level = level_entered_at(ratio);
    EXPECT_GE(level, level_entered_at(ratio + 0.001));
    const DegradationSetting low = setting_of(level, ratio);
    const DegradationSetting high = setting_of(level_entered_at(ratio + 0.001), ratio + 0.001);
    EXPECT_LE(low.concurrency_factor, high.concurrency_factor);
    EXPECT_GE(low.deadline_factor, high.deadline_factor);
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      EXPECT_LE(low.admitted_share[tier], high.admitted_share[tier]);
      // A more important tier is never admitted less.
      if (tier > 0) {
        EXPECT_LE(low.admitted_share[tier], low.admitted_share[tier - 1]);
      }
    }
  }
}

TEST(Degradation, GoesUpAtOnceAndDownOneLevelAtATime) {
  DegradationState state = next_degradation({}, 0.1, seconds(100));
  EXPECT_EQ(state.level, 4u);
  for (std::size_t level = 4; level > 0; --level) {
    const auto start = seconds(200 - 10 * static_cast<int>(level));
    state = next_degradation(state, 2, start);
    EXPECT_EQ(state.level, level);
    state = next_degradation(state, 2, start + kLeaveAfter - milliseconds(1));
    EXPECT_EQ(state.level, level);
    state = next_degradation(state, 2, start + kLeaveAfter);
    EXPECT_EQ(state.level, level - 1);
  }
}

TEST(Degradation, TimeAboveTheThresholdMustNotBeInterrupted) {
  DegradationState state = next_degradation({}, 0.6, seconds(0));
  EXPECT_EQ(state.level, 2u);
  state = next_degradation(state, 0.9, seconds(1));
  state = next_degradation(state, 0.8, seconds(9));  // at the threshold, not above it
  state = next_degradation(state, 0.9, seconds(12));
  EXPECT_EQ(next_degradation(state, 0.9, seconds(21)).level, 2u);
  EXPECT_EQ(next_degradation(state, 0.9, seconds(22)).level, 1u);
}

TEST(Degradation, RatiosWithinTheHysteresisChangeNothing) {
  std::mt19937 random(1);
  for (std::size_t level = 1; level < kLevels; ++level) {
    const DegradationLevel& one = kDegradationLevels[level];
    const DegradationLevel* next = level + 1 < kLevels ? &kDegradationLevels[level + 1] : nullptr;
    std::uniform_real_distribution<double> ratio(next != nullptr ? next->enter_below : 0,
                                                 one.leave_above);
    DegradationState state{.level = level, .above_since = std::nullopt};
    for (int second = 0; second < 1000; ++second) {
      state = next_degradation(state, ratio(random), seconds(second));
      ASSERT_EQ(state.level, level);
    }
  }
}

// Each level × each ratio: nothing of the state before is left but the level.
TEST(Degradation, AnyLevelCanFollowAnyOther) {
  for (std::size_t level = 0; level < kLevels; ++level) {
    for (double ratio = 0; ratio < 1.2; ratio += 0.01) {
      DegradationState state{.level = level, .above_since = std::nullopt};
      for (int second = 0; second < 60; ++second)
        state = next_degradation(state, ratio, seconds(second));
      const std::size_t entered = level_entered_at(ratio);
      if (entered >= level) {
        EXPECT_EQ(state.level, entered);
        continue;
      }
      // It has left every level whose threshold the ratio is above, and no other.
      EXPECT_LE(state.level, level);
      EXPECT_TRUE(state.level == 0 || ratio <= kDegradationLevels[state.level].leave_above);
      for (std::size_t left = state.level + 1; left <= level; ++left) {
        EXPECT_GT(ratio, kDegradationLevels[left].leave_above);
      }
    }
  }
}

TEST(Degradation, RefusesRatiosAndLevelsOutOfRange) {
  EXPECT_EQ(failure_of([] { level_entered_at(-0.1); }).message, "ratio '-0.1': expected 0 to inf");
  EXPECT_EQ(failure_of([] { next_degradation({}, std::nan(""), seconds(0)); }).status,
            base::ExitStatus::kUsage);
  EXPECT_EQ(failure_of([] { setting_of(5, 1); }).message, "level '5': expected 0 to 4");
}

TEST(Degradation, TheNumbersOfTheLevelsCanBeSet) {
  DegradationRules rules;
  rules.levels[1].enter_below = 2;
  rules.levels[1].leave_above = 3;
  rules.levels[1].setting.concurrency_factor = 0.9;
  rules.leave_after = seconds(1);
  rules.refuse_all_below = 0.2;
  EXPECT_EQ(level_entered_at(1.5, rules), 1u);
  EXPECT_EQ(setting_of(1, 1.5, rules).concurrency_factor, 0.9);
  EXPECT_THAT(setting_of(4, 0.1, rules).admitted_share, ElementsAre(0, 0, 0));
  DegradationState state = next_degradation({}, 1.5, seconds(0), rules);
  state = next_degradation(state, 2.5, seconds(100), rules);
  EXPECT_EQ(state.level, 1u);
  state = next_degradation(state, 3.5, seconds(100), rules);
  EXPECT_EQ(next_degradation(state, 3.5, seconds(101), rules).level, 0u);
}

}  // namespace
}  // namespace fo::plan
