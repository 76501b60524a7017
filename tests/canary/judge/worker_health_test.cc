#include "canary/judge/worker_health.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace fo::canary {
namespace {

using fleet::HealthState;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using enum Finding;

// A cool-down that is neither longer nor shorter.
constexpr double kNoJitter = 0.5;

Now at_second(int second) {
  return {.steady = seconds(second),
          .wall = text::WallTime(std::chrono::duration_cast<text::WallTime::duration>(
              hours(24 * 365 * 50) + seconds(second)))};
}

void find(WorkerHealth& health, Finding finding, int second, const std::string& reason = {}) {
  health.apply(finding, {.reason = reason}, at_second(second), kNoJitter);
}

WorkerHealth unhealthy_at(int second) {
  WorkerHealth health;
  for (int i = 0; i < 3; ++i) find(health, kFault, second, "down");
  EXPECT_EQ(health.state(), HealthState::kUnhealthy);
  return health;
}

WorkerHealth convicted_at(int second) {
  WorkerHealth health;
  health.apply(
      kConviction,
      {.reason = "wrong tokens",
       .evidence = fleet::Evidence{.canary = "rivers", .position = 3, .expected = "7", .got = "8"}},
      at_second(second), kNoJitter);
  EXPECT_TRUE(health.is_convicted());
  return health;
}

WorkerHealth restarted(const WorkerHealth& health, int saved_at, int restored_at) {
  WorkerHealth after;
  after.restore(health.save(at_second(saved_at)), at_second(restored_at));
  return after;
}

TEST(WorkerHealth, AWeakFindingIsNeverMoreThanASuspicion) {
  WorkerHealth health;
  for (int i = 0; i < 1000; ++i) {
    find(health, kWeak, i, "slow");
    ASSERT_EQ(health.state(), HealthState::kSuspicious);
    ASSERT_EQ(health.weight(seconds(i)), 0.5);
  }
  EXPECT_EQ(health.cause().reason, "slow");
  EXPECT_EQ(health.since(), at_second(0).wall);
}

TEST(WorkerHealth, TwoPassesInARowEndAWeakSuspicion) {
  WorkerHealth health;
  find(health, kWeak, 0, "slow");
  find(health, kPass, 1);
  find(health, kWeak, 2, "slow");
  find(health, kPass, 3);
  find(health, kNeutral, 4);
  EXPECT_EQ(health.state(), HealthState::kSuspicious);
  find(health, kPass, 5);
  EXPECT_EQ(health.state(), HealthState::kHealthy);
  EXPECT_EQ(health.weight(seconds(5)), 1);
  EXPECT_EQ(health.cause().reason, "");
  EXPECT_EQ(health.since(), at_second(5).wall);
}

TEST(WorkerHealth, ANeutralCheckChangesNothing) {
  WorkerHealth health;
  for (int i = 0; i < 100; ++i) find(health, kNeutral, i, "busy");
  EXPECT_EQ(health.state(), HealthState::kHealthy);
  EXPECT_EQ(health.cause().reason, "");
  find(health, kFault, 100, "down");
  find(health, kNeutral, 101, "busy");
  EXPECT_EQ(health.cause().reason, "down");
  EXPECT_EQ(health.since(), at_second(100).wall);
}

TEST(WorkerHealth, AWeakFindingDoesNotReplaceTheCauseOfAWorseState) {
  WorkerHealth health = unhealthy_at(0);
  find(health, kWeak, 1, "slow");
  EXPECT_EQ(health.state(), HealthState::kUnhealthy);
  EXPECT_EQ(health.cause().reason, "down");
}

TEST(WorkerHealth, FaultsAndWeakFindingsAreCountedApart) {
  WorkerHealth health;
  find(health, kFault, 0, "down");
  find(health, kWeak, 1, "slow");
  find(health, kFault, 2, "down");
  EXPECT_EQ(health.state(), HealthState::kSuspicious);
  find(health, kFault, 3, "down");
  EXPECT_EQ(health.state(), HealthState::kUnhealthy);
  EXPECT_EQ(health.weight(seconds(3)), 0);
}

TEST(WorkerHealth, TimeEndsACoolDown) {
  WorkerHealth health = unhealthy_at(0);
  health.advance(at_second(4), kNoJitter);
  EXPECT_EQ(health.state(), HealthState::kUnhealthy);
  health.advance(at_second(5), kNoJitter);
  EXPECT_EQ(health.state(), HealthState::kProbation);
  EXPECT_EQ(health.since(), at_second(5).wall);
  EXPECT_EQ(health.cause().reason, "down");
  find(health, kFault, 6, "down");
  EXPECT_EQ(health.failed_probations(), 1U);
}

TEST(WorkerHealth, NothingButAnAcquittalChangesAConviction) {
  WorkerHealth health = convicted_at(0);
  for (const Finding finding : {kPass, kNeutral, kWeak, kFault, kConviction}) {
    for (int i = 0; i < 20; ++i) find(health, finding, 1000, "something else");
    EXPECT_TRUE(health.is_convicted());
    EXPECT_EQ(health.cause().reason, "wrong tokens");
    EXPECT_EQ(health.cause().evidence->got, "8");
    EXPECT_EQ(health.since(), at_second(0).wall);
    EXPECT_EQ(health.weight(seconds(1000)), 0);
  }
  health.acquit(at_second(1001), kNoJitter);
  EXPECT_EQ(health.state(), HealthState::kProbation);
  EXPECT_EQ(health.cause().reason, "acquitted by an operator");
  EXPECT_FALSE(health.cause().evidence);
}

TEST(WorkerHealth, AnAcquittalOfAWorkerThatIsNotConvictedChangesNothing) {
  WorkerHealth health = unhealthy_at(0);
  health.acquit(at_second(1), kNoJitter);
  EXPECT_EQ(health.state(), HealthState::kUnhealthy);
  EXPECT_EQ(health.cause().reason, "down");
}

TEST(WorkerHealth, AnAcquittalEndsAWeakSuspicionToo) {
  WorkerHealth health;
  find(health, kWeak, 0, "slow");
  find(health, kConviction, 1, "wrong tokens");
  health.acquit(at_second(2), kNoJitter);
  for (int i = 0; i < 5; ++i) find(health, kPass, 3);
  EXPECT_EQ(health.state(), HealthState::kHealthy);
  EXPECT_EQ(health.weight(seconds(100)), 1);
}

TEST(WorkerHealth, AConvictionSurvivesARestart) {
  const WorkerHealth after = restarted(convicted_at(0), 1, 5000);
  EXPECT_TRUE(after.is_convicted());
  EXPECT_EQ(after.since(), at_second(0).wall);
  EXPECT_EQ(after.cause().evidence->canary, "rivers");
  EXPECT_EQ(after.weight(seconds(5000)), 0);
}

TEST(WorkerHealth, ACoolDownGoesOnOverARestart) {
  WorkerHealth after = restarted(unhealthy_at(0), 1, 3);
  after.advance({.steady = milliseconds(4999), .wall = at_second(4).wall}, kNoJitter);
  EXPECT_EQ(after.state(), HealthState::kUnhealthy);
  after.advance(at_second(5), kNoJitter);
  EXPECT_EQ(after.state(), HealthState::kProbation);
}

TEST(WorkerHealth, ACoolDownThatEndedMeanwhileIsOver) {
  WorkerHealth after = restarted(unhealthy_at(0), 1, 100);
  EXPECT_EQ(after.state(), HealthState::kUnhealthy);
  after.advance(at_second(100), kNoJitter);
  EXPECT_EQ(after.state(), HealthState::kProbation);
}

TEST(WorkerHealth, AWallClockThatWasSetBackDoesNotLengthenACoolDownBeyondTheLongest) {
  WorkerHealth::Saved saved = unhealthy_at(0).save(at_second(0));
  for (const text::WallTime until : {at_second(1'000'000).wall, text::WallTime::max()}) {
    saved.cool_down_until = until;
    WorkerHealth after;
    after.restore(saved, at_second(0));
    after.advance(at_second(299), kNoJitter);
    EXPECT_EQ(after.state(), HealthState::kUnhealthy);
    after.advance(at_second(300), kNoJitter);
    EXPECT_EQ(after.state(), HealthState::kProbation);
  }
}

TEST(WorkerHealth, AWeakSuspicionIsASuspicionAfterARestart) {
  WorkerHealth health;
  find(health, kWeak, 0, "slow");
  WorkerHealth after = restarted(health, 1, 2);
  EXPECT_EQ(after.state(), HealthState::kSuspicious);
  EXPECT_EQ(after.cause().reason, "slow");
  find(after, kPass, 3);
  find(after, kPass, 4);
  EXPECT_EQ(after.state(), HealthState::kHealthy);
}

TEST(WorkerHealth, FailedProbationsSurviveARestart) {
  WorkerHealth health = unhealthy_at(0);
  health.advance(at_second(5), kNoJitter);
  find(health, kFault, 6, "down");
  ASSERT_EQ(health.failed_probations(), 1U);
  EXPECT_EQ(restarted(health, 7, 8).failed_probations(), 1U);
  WorkerHealth::Saved saved = health.save(at_second(7));
  saved.failed_probations = 4'000'000'000;
  WorkerHealth after;
  after.restore(saved, at_second(8));
  EXPECT_LE(after.failed_probations(), 10U);
}

}  // namespace
}  // namespace fo::canary
