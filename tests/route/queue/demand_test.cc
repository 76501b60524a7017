#include "route/queue/demand.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/exit_status.h"
#include "support/failure.h"

namespace fo::test {
namespace {

using route::Demand;
using route::Level;
using route::MeanRequest;
using route::UsedWorker;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr base::Duration kDemandStart = seconds(1000);

// Admits `requests` in each of `time` seconds.
void admit_for(Demand& demand, int requests, base::Duration begin, int time) {
  for (int second = 0; second < time; ++second) {
    for (int i = 0; i < requests; ++i) demand.on_admitted(begin + seconds(second));
  }
}

TEST(Demand, IsWhatWasAdmitted) {
  Demand demand(kDemandStart);
  EXPECT_EQ(demand.rate(kDemandStart), 0);
  admit_for(demand, 5, kDemandStart, 100);
  EXPECT_DOUBLE_EQ(demand.rate(kDemandStart + seconds(100)), 5);
  // The first requests are not a rate per microsecond.
  Demand young(kDemandStart);
  young.on_admitted(kDemandStart);
  EXPECT_DOUBLE_EQ(young.rate(kDemandStart), 0.1);
}

TEST(Demand, ForgetsWhatIsTenMinutesOld) {
  Demand demand(kDemandStart);
  admit_for(demand, 10, kDemandStart, 600);
  EXPECT_NEAR(demand.rate(kDemandStart + minutes(10)), 10, 0.2);
  EXPECT_NEAR(demand.rate(kDemandStart + minutes(15)), 5, 0.2);
  EXPECT_EQ(demand.rate(kDemandStart + minutes(20)), 0);
  EXPECT_EQ(demand.rate(kDemandStart + minutes(10'000)), 0);
  // A later request finds nothing of the old ones in its slice.
  demand.on_admitted(kDemandStart + minutes(30));
  EXPECT_NEAR(demand.rate(kDemandStart + minutes(30)), 1.0 / 590, 1e-4);
}

TEST(Demand, OneRefusalOfAClientCountsInTenSeconds) {
  Demand demand(kDemandStart);
  for (int i = 0; i < 200; ++i) {
    const base::Duration now = kDemandStart + milliseconds(100 * i);
    for (int admitted = 0; admitted < 3; ++admitted) demand.on_admitted(now);
    demand.on_refused("a", now, now);
    demand.on_refused("b", now, now);
  }
  EXPECT_DOUBLE_EQ(demand.rate(kDemandStart + seconds(20)), (200 + 4) / 20.0);
}

TEST(Demand, WhatIsRefusedWasNotAdmitted) {
  Demand demand(kDemandStart);
  admit_for(demand, 2, kDemandStart, 10);
  const base::Duration later = kDemandStart + seconds(25);
  for (int i = 0; i < 10; ++i) demand.on_refused("a", kDemandStart, later);
  EXPECT_DOUBLE_EQ(demand.rate(later), (10 + 1) / 25.0);
  // The slice of their admission is forgotten, and another one has its place.
  const base::Duration next = kDemandStart + minutes(10);
  demand.on_admitted(next);
  demand.on_refused("a", kDemandStart, next);
  EXPECT_NEAR(demand.rate(next), 2 / 590.0, 1e-4);
}

TEST(Demand, RefusalsAtMostDoubleIt) {
  Demand demand(kDemandStart);
  admit_for(demand, 1, kDemandStart, 10);
  const base::Duration later = kDemandStart + seconds(10);
  for (int i = 0; i < 50'000; ++i) demand.on_refused(std::to_string(i), later, later);
  EXPECT_DOUBLE_EQ(demand.rate(kDemandStart + seconds(10)), 2);
  Demand refused(kDemandStart);
  refused.on_refused("a", kDemandStart, kDemandStart);
  EXPECT_EQ(refused.rate(kDemandStart), 0);
}

const MeanRequest kMean{
    .ttft = seconds(1), .tpot = milliseconds(10), .prompt_tokens = 900, .answer_tokens = 100};

TEST(Capacity, IsThatOfLittlesLaw) {
  // A request stays for 1 + 100 * 0.01 s.
  EXPECT_DOUBLE_EQ(carried_rate(std::array{UsedWorker{.slots = 64}}, kMean), 32);
  // A cache of 10 sequences bounds it, and so does a weight.
  EXPECT_DOUBLE_EQ(carried_rate(std::array{UsedWorker{.slots = 64, .kv_tokens = 10'000}}, kMean),
                   5);
  EXPECT_DOUBLE_EQ(
      carried_rate(std::array{UsedWorker{.weight = 0.5, .slots = 64}, UsedWorker{.slots = 2}},
                   kMean),
      17);
}

TEST(ServedMean, IsKnownAfterSomeRequestsUntilNoneIsServed) {
  route::ServedMean served;
  base::Duration now = kDemandStart;
  // The first request is slow.
  served.add(seconds(91), seconds(91), 900, 1, now);
  for (std::uint64_t i = 1; i < route::ServedMean::kMinRequests; ++i) {
    EXPECT_EQ(served.mean(now), std::nullopt);
    served.add(seconds(1), seconds(2), 900, 100, now += seconds(30));
  }
  EXPECT_DOUBLE_EQ(served.mean(now).value().ttft.count(), 10);
  now += route::ServedMean::kMemory;
  EXPECT_EQ(served.mean(now), std::nullopt);
  for (std::uint64_t i = 0; i < route::ServedMean::kMinRequests; ++i) {
    EXPECT_EQ(served.mean(now), std::nullopt);
    served.add(seconds(1), seconds(2), 900, 100, now);
  }
  EXPECT_DOUBLE_EQ(served.mean(now).value().ttft.count(), 1);
  EXPECT_DOUBLE_EQ(served.mean(now).value().tpot.count(), 0.01);
}

TEST(ServedMean, GivesLaterRequestsMoreWeight) {
  route::ServedMean served;
  for (int i = 0; i < 1000; ++i) served.add(seconds(1), seconds(1), 1, 1, kDemandStart);
  for (int i = 0; i < 50; ++i) served.add(seconds(2), seconds(2), 1, 1, kDemandStart);
  EXPECT_NEAR(served.mean(kDemandStart).value().ttft.count(), 1.63, 0.02);
}

TEST(Capacity, WorkersThatAreOutCarryNothing) {
  EXPECT_EQ(carried_rate({}, kMean), 0);
  EXPECT_EQ(carried_rate(std::array{UsedWorker{.weight = 0, .slots = 64}, UsedWorker{.slots = 0},
                                    UsedWorker{.slots = 64, .kv_tokens = 0}},
                         kMean),
            0);
  // A sequence that does not fit.
  EXPECT_EQ(carried_rate(std::array{UsedWorker{.slots = 64, .kv_tokens = 999}}, kMean), 0);
}

TEST(Capacity, RatioToTheDemand) {
  EXPECT_EQ(route::capacity_ratio(30, 40), 0.75);
  EXPECT_EQ(route::capacity_ratio(0, 40), 0);
  EXPECT_TRUE(std::isinf(route::capacity_ratio(30, 0)));
}

TEST(Level, FollowsTheRatio) {
  Level level;
  EXPECT_EQ(level.level(), 0U);
  level.update(0.6, kDemandStart);
  EXPECT_EQ(level.level(), 2U);
  EXPECT_EQ(level.setting().admitted_share[plan::kBestEffort], 0);
  level.update(2, kDemandStart + seconds(1));
  level.update(2, kDemandStart + seconds(11));
  EXPECT_EQ(level.level(), 1U);
  level.update(0.04, kDemandStart + seconds(12));
  EXPECT_EQ(level.level(), 4U);
  EXPECT_EQ(level.setting().admitted_share[plan::kPremium], 0);
}

TEST(Level, MayBePinned) {
  Level level;
  level.update(2, kDemandStart);
  level.pin(3);
  EXPECT_EQ(level.level(), 3U);
  EXPECT_EQ(level.setting().concurrency_factor, 0.5);
  // The ratio is still followed, and is in force again at once.
  level.update(0.9, kDemandStart + seconds(1));
  EXPECT_EQ(level.level(), 3U);
  level.pin(std::nullopt);
  EXPECT_EQ(level.level(), 1U);
  EXPECT_EQ(status_of([&] { level.pin(5); }), base::ExitStatus::kUsage);
  EXPECT_EQ(level.level(), 1U);
}

TEST(Demand, ItsTimeAndTheWeightOfRefusalsCanBeSet) {
  Demand demand(kDemandStart, {.time = minutes(1), .max_factor = 3});
  admit_for(demand, 10, kDemandStart, 600);
  EXPECT_NEAR(demand.rate(kDemandStart + seconds(630)), 4, 0.1);
  EXPECT_EQ(demand.rate(kDemandStart + seconds(670)), 0);
  const base::Duration later = kDemandStart + seconds(2000);
  for (int i = 0; i < 10; ++i) demand.on_admitted(later);
  for (int i = 0; i < 50; ++i) demand.on_refused(std::to_string(i), kDemandStart, later);
  demand.set_settings({.time = minutes(1), .max_factor = 2});
  const double twice = demand.rate(later);
  demand.set_settings({.time = minutes(1), .max_factor = 3});
  EXPECT_DOUBLE_EQ(demand.rate(later), twice * 1.5);
}

}  // namespace
}  // namespace fo::test
