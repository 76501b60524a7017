#include "fleet/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace fo::fleet {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using State = HealthState;
using Event = HealthEvent;

// The middle of a cool-down: neither longer nor shorter.
constexpr double kMiddle = 0.5;
constexpr std::array kEvents{Event::kSuccess, Event::kFault, Event::kConviction, Event::kAcquittal,
                             Event::kTime};

void apply(Health& health, Event event, int times, base::Duration now) {
  for (int i = 0; i < times; ++i) health.apply(event, now, kMiddle);
}

// A worker that has come into this state by time 0.
Health health_in(State state, const HealthRules& rules = {}) {
  Health health(rules);
  switch (state) {
    case State::kHealthy:
      break;
    case State::kSuspicious:
      apply(health, Event::kFault, 1, seconds(0));
      break;
    case State::kUnhealthy:
      apply(health, Event::kFault, 3, seconds(0));
      break;
    case State::kProbation:
      apply(health, Event::kFault, 3, seconds(-1000));
      apply(health, Event::kTime, 1, seconds(0));
      break;
    case State::kConvicted:
      apply(health, Event::kConviction, 1, seconds(0));
      break;
  }
  EXPECT_EQ(health.state(), state);
  return health;
}

TEST(Health, AStateIsReadAsItIsWritten) {
  for (const State state : kHealthStates) EXPECT_EQ(parse_health_state(to_string(state)), state);
  EXPECT_EQ(parse_health_state("Healthy"), std::nullopt);
}

TEST(Health, EachStateHasAnAnswerToEachEvent) {
  const std::map<State, std::array<State, kEvents.size()>> table{
      {State::kHealthy,
       {State::kHealthy, State::kSuspicious, State::kConvicted, State::kHealthy, State::kHealthy}},
      {State::kSuspicious,
       {State::kSuspicious, State::kSuspicious, State::kConvicted, State::kSuspicious,
        State::kSuspicious}},
      {State::kUnhealthy,
       {State::kUnhealthy, State::kUnhealthy, State::kConvicted, State::kUnhealthy,
        State::kUnhealthy}},
      {State::kProbation,
       {State::kProbation, State::kUnhealthy, State::kConvicted, State::kProbation,
        State::kProbation}},
      {State::kConvicted,
       {State::kConvicted, State::kConvicted, State::kConvicted, State::kProbation,
        State::kConvicted}},
  };
  for (const auto& [state, after] : table) {
    for (std::size_t i = 0; i < kEvents.size(); ++i) {
      Health health = health_in(state);
      health.apply(kEvents[i], milliseconds(1), kMiddle);
      EXPECT_EQ(health.state(), after[i]) << to_string(state) << " and event " << i;
    }
  }
}

TEST(Health, WeightsAreThoseOfTheTable) {
  EXPECT_EQ(health_in(State::kHealthy).weight(seconds(0)), 1);
  EXPECT_EQ(health_in(State::kSuspicious).weight(seconds(0)), 0.5);
  for (const State state : {State::kUnhealthy, State::kProbation, State::kConvicted}) {
    EXPECT_EQ(health_in(state).weight(seconds(0)), 0);
  }
}

TEST(Health, TwoSuccessesInARowEndASuspicion) {
  Health health = health_in(State::kSuspicious);
  apply(health, Event::kSuccess, 1, seconds(1));
  apply(health, Event::kFault, 1, seconds(1));
  apply(health, Event::kSuccess, 1, seconds(1));
  EXPECT_EQ(health.state(), State::kSuspicious);
  apply(health, Event::kSuccess, 1, seconds(1));
  EXPECT_EQ(health.state(), State::kHealthy);
}

TEST(Health, ThreeFaultsInARowAreEnough) {
  Health health;
  apply(health, Event::kFault, 2, seconds(0));
  apply(health, Event::kSuccess, 1, seconds(0));
  apply(health, Event::kFault, 2, seconds(0));
  EXPECT_EQ(health.state(), State::kSuspicious);
  apply(health, Event::kFault, 1, seconds(0));
  EXPECT_EQ(health.state(), State::kUnhealthy);
}

// One success between two faults each: never 3 in a row, and two thirds of all.
TEST(Health, SoAreMostOfTwentyOutcomesInThirtySeconds) {
  Health health;
  int outcomes = 0;
  while (health.state() != State::kUnhealthy && outcomes < 100) {
    health.apply(outcomes % 3 == 2 ? Event::kSuccess : Event::kFault, seconds(1), kMiddle);
    ++outcomes;
  }
  EXPECT_EQ(outcomes, 20);
}

TEST(Health, HalfOfTheOutcomesAreNotMostOfThem) {
  Health health;
  for (int i = 0; i < 1000; ++i) {
    health.apply(i % 2 == 0 ? Event::kSuccess : Event::kFault, milliseconds(i), kMiddle);
    ASSERT_EQ(health.state(), i == 0 ? State::kHealthy : State::kSuspicious);
  }
}

TEST(Health, OutcomesOlderThanThirtySecondsDoNotCount) {
  Health health;
  for (int i = 0; i < 200; ++i) {
    // 20 outcomes take 40 s.
    health.apply(i % 3 == 2 ? Event::kSuccess : Event::kFault, seconds(2 * i), kMiddle);
    ASSERT_EQ(health.state(), State::kSuspicious);
  }
}

base::Duration cool_down_of(Health& health, base::Duration now) {
  base::Duration time(0);
  while (health.state() == State::kUnhealthy && time < minutes(10)) {
    time += milliseconds(10);
    health.apply(Event::kTime, now + time, kMiddle);
  }
  EXPECT_EQ(health.state(), State::kProbation);
  return time;
}

TEST(Health, EachFailedProbationDoublesTheCoolDown) {
  Health health = health_in(State::kUnhealthy);
  base::Duration now(0);
  for (const int expected : {5, 10, 20, 40, 80, 160, 300, 300, 300}) {
    const base::Duration time = cool_down_of(health, now);
    EXPECT_EQ(time, seconds(expected));
    now += time;
    apply(health, Event::kFault, 1, now);
    EXPECT_EQ(health.state(), State::kUnhealthy);
  }
}

TEST(Health, ACoolDownIsAQuarterLongerOrShorter) {
  for (const auto& [random, time] : {std::pair(0.0, 3750), std::pair(0.75, 5625)}) {
    Health health = health_in(State::kSuspicious);
    health.apply(Event::kFault, seconds(0), random);
    health.apply(Event::kFault, seconds(0), random);
    health.apply(Event::kTime, milliseconds(time - 1), random);
    EXPECT_EQ(health.state(), State::kUnhealthy);
    health.apply(Event::kTime, milliseconds(time), random);
    EXPECT_EQ(health.state(), State::kProbation);
  }
}

TEST(Health, AProbationHasOneLeaseAtATime) {
  EXPECT_EQ(health_in(State::kHealthy).take_lease(seconds(1)), std::nullopt);
  EXPECT_EQ(health_in(State::kUnhealthy).take_lease(seconds(1)), std::nullopt);
  EXPECT_EQ(health_in(State::kConvicted).take_lease(seconds(1)), std::nullopt);
  Health health = health_in(State::kProbation);
  const auto first = health.take_lease(seconds(10));
  ASSERT_TRUE(first);
  EXPECT_EQ(health.take_lease(seconds(10)), std::nullopt);
  health.end_lease(*first);
  const auto second = health.take_lease(seconds(10));
  ASSERT_TRUE(second);
  health.end_lease(*first);
  EXPECT_EQ(health.take_lease(seconds(10)), std::nullopt);
}

TEST(Health, AnExpiredLeaseIsAFault) {
  Health health = health_in(State::kProbation);
  ASSERT_TRUE(health.take_lease(seconds(10)));
  health.apply(Event::kTime, milliseconds(9999), kMiddle);
  EXPECT_EQ(health.state(), State::kProbation);
  // Although the next event is a success.
  health.apply(Event::kSuccess, seconds(10), kMiddle);
  EXPECT_EQ(health.state(), State::kUnhealthy);
  EXPECT_EQ(health.failed_probations(), 1U);
}

TEST(Health, FiveSuccessesPassAProbationAndTheWeightRises) {
  Health health = health_in(State::kProbation);
  apply(health, Event::kSuccess, 4, seconds(1));
  EXPECT_EQ(health.state(), State::kProbation);
  apply(health, Event::kSuccess, 1, seconds(1));
  EXPECT_EQ(health.state(), State::kHealthy);
  EXPECT_EQ(health.weight(seconds(1)), 0.1);
  EXPECT_EQ(health.weight(seconds(6)), 0.5);
  EXPECT_EQ(health.weight(seconds(11)), 1);
  // A fault neither raises the weight nor ends the rise.
  apply(health, Event::kFault, 1, seconds(2));
  EXPECT_EQ(health.weight(seconds(2)), 0.05);
  apply(health, Event::kSuccess, 2, seconds(3));
  EXPECT_EQ(health.weight(seconds(3)), 0.2);
}

TEST(Health, TenHealthyMinutesForgetOneFailedProbation) {
  Health health = health_in(State::kProbation);
  base::Duration now(0);
  for (int i = 0; i < 3; ++i) {
    apply(health, Event::kFault, 1, now);
    now += cool_down_of(health, now);
  }
  EXPECT_EQ(health.failed_probations(), 3U);
  apply(health, Event::kSuccess, 5, now);
  apply(health, Event::kTime, 1, now + minutes(10) - seconds(1));
  EXPECT_EQ(health.failed_probations(), 3U);
  apply(health, Event::kTime, 1, now + minutes(10));
  EXPECT_EQ(health.failed_probations(), 2U);
  apply(health, Event::kTime, 1, now + minutes(30));
  EXPECT_EQ(health.failed_probations(), 0U);
}

TEST(Health, OnlyAnAcquittalEndsAConviction) {
  for (const State state : kHealthStates) {
    Health health = health_in(state);
    apply(health, Event::kConviction, 1, seconds(0));
    for (int i = 0; i < 1000; ++i) {
      health.apply(i % 3 == 0 ? Event::kFault : Event::kSuccess, minutes(i), kMiddle);
    }
    EXPECT_EQ(health.state(), State::kConvicted);
    apply(health, Event::kAcquittal, 1, minutes(1000));
    EXPECT_EQ(health.state(), State::kProbation);
  }
}

TEST(Health, ARestoredStateIsTheSavedOne) {
  for (const State state : kHealthStates) {
    const Health saved = health_in(state);
    Health restored;
    restored.restore(saved.snapshot(seconds(1)), seconds(1));
    EXPECT_EQ(restored.state(), state);
    EXPECT_EQ(restored.weight(seconds(1)), saved.weight(seconds(1)));
    restored.apply(Event::kTime, milliseconds(4999), kMiddle);
    EXPECT_EQ(restored.state(), state);
  }
}

TEST(Health, ARestoredWorkerServesTheRestOfItsCoolDown) {
  const Health saved = health_in(State::kUnhealthy);
  EXPECT_EQ(saved.snapshot(seconds(2)).cool_down, seconds(3));
  // Over, but no event has said so.
  EXPECT_EQ(saved.snapshot(seconds(60)).cool_down, seconds(0));
  EXPECT_EQ(health_in(State::kProbation).snapshot(seconds(2)).cool_down, seconds(0));
  // The clock of another run.
  Health restored;
  restored.restore(saved.snapshot(seconds(2)), seconds(1000));
  restored.apply(Event::kTime, milliseconds(1'002'999), kMiddle);
  EXPECT_EQ(restored.state(), State::kUnhealthy);
  restored.apply(Event::kTime, seconds(1003), kMiddle);
  EXPECT_EQ(restored.state(), State::kProbation);
}

TEST(Health, ASavedStateIsLimited) {
  Health restored;
  restored.restore({.state = State::kUnhealthy,
                    .failed_probations = std::numeric_limits<unsigned>::max(),
                    .cool_down = std::chrono::hours(100)},
                   seconds(0));
  EXPECT_EQ(restored.failed_probations(), 6U);
  restored.apply(Event::kTime, seconds(299), kMiddle);
  EXPECT_EQ(restored.state(), State::kUnhealthy);
  restored.apply(Event::kTime, seconds(300), kMiddle);
  EXPECT_EQ(restored.state(), State::kProbation);
  apply(restored, Event::kFault, 1, seconds(300));
  EXPECT_EQ(cool_down_of(restored, seconds(300)), seconds(300));
}

TEST(Health, ARestoredWorkerHasNoOutcomesAndNoLease) {
  Health health = health_in(State::kSuspicious);
  apply(health, Event::kFault, 1, seconds(0));
  health.restore(health.snapshot(seconds(0)), seconds(0));
  apply(health, Event::kFault, 2, seconds(0));
  EXPECT_EQ(health.state(), State::kSuspicious);
  apply(health, Event::kFault, 1, seconds(0));
  EXPECT_EQ(health.state(), State::kUnhealthy);

  Health probation = health_in(State::kProbation);
  ASSERT_TRUE(probation.take_lease(seconds(1)));
  apply(probation, Event::kSuccess, 4, seconds(0));
  probation.restore(probation.snapshot(seconds(0)), seconds(0));
  apply(probation, Event::kTime, 1, seconds(10));
  EXPECT_EQ(probation.state(), State::kProbation);
  apply(probation, Event::kSuccess, 4, seconds(10));
  EXPECT_EQ(probation.state(), State::kProbation);
  apply(probation, Event::kSuccess, 1, seconds(10));
  EXPECT_EQ(probation.state(), State::kHealthy);
}

TEST(Health, ARestoredWorkerIsNotRising) {
  Health health = health_in(State::kProbation);
  apply(health, Event::kSuccess, 5, seconds(0));
  EXPECT_EQ(health.weight(seconds(1)), 0.1);
  health.restore(health.snapshot(seconds(1)), seconds(1));
  EXPECT_EQ(health.weight(seconds(1)), 1);
}

TEST(Health, TheClassicBreakerOpensAfterThreeFaultsForAMinute) {
  Health health(kClassicBreaker);
  apply(health, Event::kFault, 2, seconds(0));
  EXPECT_EQ(health.weight(seconds(0)), 1);
  apply(health, Event::kSuccess, 1, seconds(0));
  apply(health, Event::kFault, 2, seconds(0));
  EXPECT_EQ(health.weight(seconds(0)), 1);
  apply(health, Event::kFault, 1, seconds(0));
  EXPECT_EQ(health.weight(seconds(0)), 0);
  apply(health, Event::kTime, 1, milliseconds(59'999));
  EXPECT_EQ(health.take_lease(seconds(70)), std::nullopt);
  // An attempt without an answer ends; the next one decides.
  apply(health, Event::kTime, 1, seconds(60));
  ASSERT_TRUE(health.take_lease(seconds(70)));
  apply(health, Event::kTime, 1, seconds(70));
  EXPECT_EQ(health.state(), State::kUnhealthy);
  apply(health, Event::kTime, 1, seconds(130));
  ASSERT_TRUE(health.take_lease(seconds(140)));
  apply(health, Event::kSuccess, 1, seconds(131));
  EXPECT_EQ(health.weight(seconds(131)), 1);
}

TEST(Health, TheClassicBreakerCountsNothingButFaultsInARow) {
  Health health(kClassicBreaker);
  for (int i = 0; i < 100; ++i) {
    health.apply(i % 3 == 2 ? Event::kSuccess : Event::kFault, seconds(1), kMiddle);
    ASSERT_EQ(health.weight(seconds(1)), 1);
  }
}

// Wherever a random walk leads, a worker that is not convicted becomes healthy once its cool-down
// is over and it does nothing but succeed. Only a success raises a weight.
TEST(Health, RandomWalks) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> part(0, 1);
  for (int walk = 0; walk < 2000; ++walk) {
    Health health(walk % 4 == 0 ? kClassicBreaker : HealthRules{});
    base::Duration now(0);
    for (int step = 0; step < 200; ++step) {
      now += milliseconds(random() % (walk % 2 == 0 ? 100 : 20'000));
      health.apply(Event::kTime, now, part(random));
      const State before = health.state();
      const double weight = health.weight(now);
      // Convictions are rare, because they end most of a walk.
      const Event event = kEvents[random() % 50 == 0 ? 2 + random() % 3 : random() % 2];
      health.apply(event, now, part(random));
      const double after = health.weight(now);
      ASSERT_GE(after, 0);
      ASSERT_LE(after, 1);
      if (event == Event::kSuccess) {
        ASSERT_GE(after, weight);
      } else {
        ASSERT_LE(after, weight);
      }
      if (before == State::kConvicted && event != Event::kAcquittal) {
        ASSERT_EQ(health.state(), State::kConvicted);
      }
      if (random() % 4 == 0) health.take_lease(now + seconds(5));
    }
    if (health.state() == State::kConvicted) health.apply(Event::kAcquittal, now, part(random));
    now += seconds(300);
    health.apply(Event::kTime, now, part(random));
    // A lease may have expired only now.
    now += seconds(300);
    health.apply(Event::kTime, now, part(random));
    for (int i = 0; i < 5; ++i) health.apply(Event::kSuccess, now, part(random));
    ASSERT_EQ(health.state(), State::kHealthy);
    ASSERT_EQ(health.weight(now + seconds(10)), 1);
  }
}

const SetMember kIn{.state = State::kHealthy, .weight = 1};
const SetMember kDoubtful{.state = State::kSuspicious, .weight = 0.5};
const SetMember kOut{.state = State::kUnhealthy, .weight = 0};
const SetMember kOnProbation{.state = State::kProbation, .weight = 0};
const SetMember kGuilty{.state = State::kConvicted, .weight = 0};

std::vector<double> weights(const std::vector<SetMember>& members) {
  return weights_of_set(members).weights;
}

TEST(HealthOfSet, HalfOfItMayBeOut) {
  EXPECT_THAT(weights({kIn, kOut, kDoubtful, kOut}), ElementsAre(1, 0, 0.5, 0));
  EXPECT_EQ(weights_of_set(std::vector{kIn, kOut, kDoubtful, kOut}).kept_in, 0U);
  EXPECT_THAT(weights({}), ElementsAre());
}

TEST(HealthOfSet, BeyondHalfOfItTheLeastBadStayIn) {
  SetMember worse = kOut;
  worse.failed_probations = 2;
  SetMember bad = kOut;
  bad.failed_probations = 1;
  EXPECT_THAT(weights({worse, bad, kOut, kOut}), ElementsAre(0, 0, 0.5, 0.5));
  EXPECT_EQ(weights_of_set(std::vector{worse, bad, kOut, kOut}).kept_in, 2U);
  EXPECT_THAT(weights({worse, kOut, kIn}), ElementsAre(0, 0.5, 1));
  // A worker whose cool-down is over is the less bad one.
  EXPECT_THAT(weights({kOut, kOnProbation}), ElementsAre(0, 0.5));
}

TEST(HealthOfSet, ALoneWorkerIsAlwaysIn) {
  EXPECT_THAT(weights({kOut}), ElementsAre(0.5));
  SetMember light = kOut;
  light.panic_weight = 0.25;
  EXPECT_THAT(weights({light}), ElementsAre(0.25));
  EXPECT_THAT(weights({kOnProbation}), ElementsAre(0.5));
  EXPECT_THAT(weights({kOut, kGuilty}), ElementsAre(0.5, 0));
}

TEST(HealthOfSet, APanicNeverBringsAConvictedWorkerBack) {
  EXPECT_THAT(weights({kGuilty}), ElementsAre(0));
  EXPECT_THAT(weights({kGuilty, kGuilty, kOut, kGuilty}), ElementsAre(0, 0, 0.5, 0));
  SetMember trusted = kGuilty;
  trusted.weight = 1;
  EXPECT_THAT(weights({trusted}), ElementsAre(0));
}

TEST(HealthOfSet, RandomSets) {
  std::mt19937 random(1);
  for (int run = 0; run < 10'000; ++run) {
    std::vector<SetMember> members(random() % 10);
    std::size_t unconvicted = 0;
    for (SetMember& member : members) {
      member = std::array{kIn, kDoubtful, kOut, kOnProbation, kGuilty}[random() % 5];
      member.failed_probations = random() % 4;
      if (member.state != State::kConvicted) ++unconvicted;
    }
    const SetWeights result = weights_of_set(members);
    std::size_t out = 0;
    std::size_t kept_in = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i].state == State::kConvicted) {
        ASSERT_EQ(result.weights[i], 0);
        continue;
      }
      if (members[i].weight > 0) {
        ASSERT_EQ(result.weights[i], members[i].weight);
        continue;
      }
      ++(result.weights[i] > 0 ? kept_in : out);
    }
    ASSERT_EQ(result.kept_in, kept_in);
    ASSERT_LE(out, unconvicted / 2);
    // No more than necessary.
    if (kept_in > 0) {
      ASSERT_EQ(out, unconvicted / 2);
    }
  }
}

TEST(Health, TheWindowAndItsShareCanBeSet) {
  const auto outcomes_until_unhealthy = [](const HealthRules& rules) {
    Health health(rules);
    int outcomes = 0;
    while (health.state() != State::kUnhealthy && outcomes < 200) {
      health.apply(outcomes % 3 == 2 ? Event::kSuccess : Event::kFault, seconds(outcomes), kMiddle);
      ++outcomes;
    }
    return outcomes;
  };
  EXPECT_EQ(outcomes_until_unhealthy({.window = seconds(19)}), 200);
  EXPECT_EQ(outcomes_until_unhealthy({.window = seconds(100)}), 20);
  EXPECT_EQ(outcomes_until_unhealthy({.window_outcomes = 10}), 10);
  EXPECT_EQ(outcomes_until_unhealthy({.fault_share = 0.8}), 200);
}

TEST(Health, OneFaultMayBeEnough) {
  Health health({.faults_in_row = 1});
  health.apply(Event::kFault, seconds(0), kMiddle);
  EXPECT_EQ(health.state(), State::kUnhealthy);
}

TEST(Health, ALongerRiseIsNotForAWorkerThatHasRisen) {
  Health health = health_in(State::kProbation);
  for (int i = 0; i < 5; ++i) health.apply(Event::kSuccess, seconds(0), kMiddle);
  health.apply(Event::kSuccess, seconds(20), kMiddle);
  health.set_rules({.rise = minutes(10)});
  EXPECT_EQ(health.weight(seconds(20)), 1);
}

TEST(Health, NewRulesKeepTheStateAndTheOutcomes) {
  Health health;
  for (int i = 0; i < 12; ++i) {
    health.apply(i % 3 == 2 ? Event::kSuccess : Event::kFault, seconds(i), kMiddle);
  }
  EXPECT_EQ(health.state(), State::kSuspicious);
  health.set_rules({.window_outcomes = 13, .window = seconds(60)});
  EXPECT_EQ(health.state(), State::kSuspicious);
  health.apply(Event::kFault, seconds(40), kMiddle);
  EXPECT_EQ(health.state(), State::kUnhealthy) << "of 13 outcomes in 40 s";
}

TEST(Health, ALongerCoolDownIsReached) {
  const HealthRules rules{.cool_down = milliseconds(100), .max_cool_down = seconds(300)};
  Health health = health_in(State::kProbation, rules);
  base::Duration now = seconds(0);
  for (int i = 0; i < 20; ++i) {
    health.apply(Event::kFault, now, kMiddle);
    now += minutes(10);
    health.apply(Event::kTime, now, kMiddle);
  }
  health.apply(Event::kFault, now, kMiddle);
  EXPECT_EQ(health.snapshot(now).cool_down, seconds(300));
}

TEST(HealthOfSet, ThePartThatMayBeOutCanBeSet) {
  const std::vector<SetMember> members{kOut, kOut, kOut, kIn};
  EXPECT_EQ(weights_of_set(members, 0.25).kept_in, 2U);
  EXPECT_EQ(weights_of_set(members, 0.75).kept_in, 0U);
  EXPECT_EQ(weights_of_set(std::vector{kOut, kOut}, 1).kept_in, 1U) << "one is always in";
}

}  // namespace
}  // namespace fo::fleet
