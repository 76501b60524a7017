#include "canary/check/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <string_view>
#include <vector>

namespace fo::canary {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool is_due(const Schedule& schedule, Step step, base::Duration now) {
  const std::vector<Step> due = schedule.due(now);
  return std::ranges::find(due, step) != due.end();
}

// When the step is due, as far as an hour shows it.
base::Duration due_time(const Schedule& schedule, Step step, base::Duration from) {
  base::Duration time = from;
  while (!is_due(schedule, step, time) && time < from + std::chrono::hours(1)) {
    time += milliseconds(100);
  }
  return time;
}

void done(Schedule& schedule, Step step, base::Duration now) {
  schedule.done(std::array{step}, now);
}

TEST(Schedule, StepsHaveDifferentNames) {
  std::set<std::string_view> names;
  for (const Step step : kSteps) names.insert(to_string(step));
  EXPECT_EQ(names.size(), kSteps.size());
  EXPECT_EQ(to_string(Step::kContent), "content");
}

TEST(Schedule, ThePhaseIsAPartOfEachInterval) {
  const Intervals intervals;
  const base::Duration now = seconds(1000);
  for (const Step step : kSteps) {
    EXPECT_EQ(due_time(Schedule(intervals, now, 0), step, now), now);
    EXPECT_EQ(due_time(Schedule(intervals, now, 0.5), step, now), now + intervals.of(step) / 2);
    EXPECT_EQ(due_time(Schedule(intervals, now, 1), step, now), now + intervals.of(step));
    EXPECT_FALSE(
        is_due(Schedule(intervals, now, 1), step, now + intervals.of(step) - milliseconds(1)));
  }
  EXPECT_EQ(Schedule(intervals, now, 0.5).next(), now + seconds(1));
}

TEST(Schedule, AStepKeepsItsPhase) {
  Schedule schedule({}, seconds(0), 0.5);
  // Due at 15 s, and done late.
  done(schedule, Step::kContent, seconds(20));
  EXPECT_EQ(due_time(schedule, Step::kContent, seconds(0)), seconds(45));
  // Exactly when it is due.
  done(schedule, Step::kContent, seconds(45));
  EXPECT_EQ(due_time(schedule, Step::kContent, seconds(0)), seconds(75));
}

TEST(Schedule, WhatWasMissedIsNotMadeUpFor) {
  Schedule schedule({}, seconds(0), 0.5);
  done(schedule, Step::kConnect, seconds(1000));
  EXPECT_EQ(due_time(schedule, Step::kConnect, seconds(0)), seconds(1001));
  done(schedule, Step::kConnect, seconds(1001));
  EXPECT_EQ(due_time(schedule, Step::kConnect, seconds(0)), seconds(1003));
}

TEST(Schedule, AStepThatBecomesDueDuringACheckStaysDue) {
  Schedule schedule({}, seconds(0), 0.5);
  // The connection of 13 s takes until the content is due.
  done(schedule, Step::kConnect, seconds(11));
  const std::vector<Step> due = schedule.due(seconds(13));
  EXPECT_TRUE(is_due(schedule, Step::kConnect, seconds(13)));
  EXPECT_FALSE(is_due(schedule, Step::kContent, seconds(13)));
  schedule.done(due, seconds(16));
  EXPECT_TRUE(is_due(schedule, Step::kContent, seconds(16)));
  EXPECT_EQ(due_time(schedule, Step::kConnect, seconds(16)), seconds(17));
}

TEST(Schedule, TheContentOfASuspectIsDueSooner) {
  Schedule schedule({}, seconds(0), 1);
  schedule.hurry(seconds(10));
  EXPECT_EQ(due_time(schedule, Step::kContent, seconds(0)), seconds(15));
  // Not later because it is asked for again.
  schedule.hurry(seconds(12));
  EXPECT_EQ(due_time(schedule, Step::kContent, seconds(0)), seconds(15));
  EXPECT_EQ(due_time(schedule, Step::kToken, seconds(0)), seconds(10));
}

TEST(Schedule, AShorterIntervalIsNotLengthenedForASuspect) {
  Schedule schedule({.content = seconds(2)}, seconds(0), 0);
  done(schedule, Step::kContent, seconds(0));
  schedule.hurry(seconds(1));
  EXPECT_EQ(due_time(schedule, Step::kContent, seconds(0)), seconds(2));
  done(schedule, Step::kContent, seconds(2));
  schedule.hurry(seconds(2));
  EXPECT_EQ(due_time(schedule, Step::kContent, seconds(0)), seconds(4));
}

}  // namespace
}  // namespace fo::canary
