#include "route/queue/set_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace fo::test {
namespace {

using plan::kBestEffort;
using plan::kPremium;
using plan::kStandard;
using route::QueuedRequest;
using route::SetQueue;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr base::Duration kQueueStart = seconds(1000);

QueuedRequest waiting(std::uint64_t id, std::size_t tier = kPremium, std::uint64_t tokens = 100,
                      base::Duration deadline = base::Duration::max()) {
  return {.id = id, .tier = tier, .tokens = tokens, .deadline = deadline};
}

std::vector<std::uint64_t> take_all(SetQueue& queue, base::Duration now) {
  std::vector<std::uint64_t> ids;
  while (queue.head()) ids.push_back(queue.take(now).id);
  return ids;
}

TEST(SetQueue, TheEarliestDeadlineIsFirst) {
  SetQueue queue;
  queue.add(waiting(1), kQueueStart);
  queue.add(waiting(2, kPremium, 100, kQueueStart + seconds(20)), kQueueStart);
  queue.add(waiting(3, kPremium, 100, kQueueStart + seconds(10)), kQueueStart);
  queue.add(waiting(4, kPremium, 100, kQueueStart + seconds(20)), kQueueStart);
  EXPECT_EQ(queue.head()->id, 3U);
  EXPECT_THAT(take_all(queue, kQueueStart), ElementsAre(3, 2, 4, 1));
  EXPECT_FALSE(queue.head());
}

TEST(SetQueue, AShortDeadlineCountsAsAQuarterOfTheTimeout) {
  SetQueue queue;
  queue.add(waiting(1, kPremium, 100, kQueueStart + seconds(8)), kQueueStart);
  queue.add(waiting(2, kPremium, 100, kQueueStart + seconds(2)), kQueueStart + seconds(1));
  EXPECT_THAT(take_all(queue, kQueueStart + seconds(1)), ElementsAre(1, 2));
}

TEST(SetQueue, TiersShareTheTokens) {
  SetQueue queue;
  std::uint64_t id = 0;
  for (int i = 0; i < 700; ++i) {
    queue.add(waiting(++id, kBestEffort, 10), kQueueStart);
    queue.add(waiting(++id, kPremium, 40), kQueueStart);
    queue.add(waiting(++id, kStandard, 20), kQueueStart);
  }
  std::array<std::uint64_t, plan::kTiers> tokens{};
  for (int i = 0; i < 600; ++i) {
    const QueuedRequest taken = queue.take(kQueueStart);
    tokens[taken.tier] += taken.tokens;
  }
  EXPECT_NEAR(static_cast<double>(tokens[kPremium]) / static_cast<double>(tokens[kBestEffort]), 4,
              0.1);
  EXPECT_NEAR(static_cast<double>(tokens[kStandard]) / static_cast<double>(tokens[kBestEffort]), 2,
              0.1);
}

TEST(SetQueue, AnUnusedShareIsForTheOthersAndIsNotSaved) {
  SetQueue queue;
  for (std::uint64_t id = 0; id < 100; ++id) queue.add(waiting(id, kBestEffort), kQueueStart);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(queue.take(kQueueStart).tier, kBestEffort);
  for (std::uint64_t id = 100; id < 200; ++id) queue.add(waiting(id, kPremium), kQueueStart);
  int premium = 0;
  for (int i = 0; i < 50; ++i) premium += queue.take(kQueueStart).tier == kPremium ? 1 : 0;
  EXPECT_NEAR(premium, 40, 1);
}

TEST(SetQueue, WhatWaitsElsewhereHasTheShareOfItsTier) {
  SetQueue queue;
  EXPECT_EQ(queue.next_tier(), std::nullopt);
  for (std::uint64_t id = 0; id < 20; ++id) queue.add(waiting(id), kQueueStart);
  int elsewhere = 0;
  for (int i = 0; i < 10; ++i) {
    if (queue.next_tier({false, true, false}) == kStandard) {
      queue.charge(kStandard, 100);
      ++elsewhere;
    } else {
      queue.take(kQueueStart);
    }
  }
  EXPECT_EQ(elsewhere, 3) << "2 of 6, after one of each";
  // While they could not be served, they have gained nothing.
  for (int i = 0; i < 10; ++i) queue.take(kQueueStart);
  queue.charge(kStandard, 100);
  EXPECT_EQ(queue.next_tier({false, true, false}), kPremium);
}

TEST(SetQueue, ItIsBounded) {
  SetQueue queue({.requests = 3, .tokens = 1000});
  EXPECT_EQ(queue.add(waiting(1, kPremium, 5000), kQueueStart).answer, SetQueue::Answer::kQueued);
  EXPECT_EQ(queue.add(waiting(2, kPremium, 1), kQueueStart).answer, SetQueue::Answer::kFull);
  EXPECT_TRUE(queue.cancel(1, kQueueStart));
  for (std::uint64_t id = 3; id < 6; ++id) {
    EXPECT_EQ(queue.add(waiting(id), kQueueStart).answer, SetQueue::Answer::kQueued);
  }
  EXPECT_EQ(queue.add(waiting(6), kQueueStart).answer, SetQueue::Answer::kFull);
  EXPECT_EQ(queue.size(), 3U);
  EXPECT_EQ(queue.tokens(kPremium), 300U);
}

TEST(SetQueue, ATierBelowItsShareTakesThePlaceOfOneAboveIt) {
  SetQueue queue({.requests = 1000, .tokens = 1000});
  for (std::uint64_t id = 1; id <= 10; ++id) queue.add(waiting(id, kBestEffort), kQueueStart);
  const SetQueue::Added added = queue.add(waiting(11, kPremium, 150), kQueueStart);
  EXPECT_EQ(added.answer, SetQueue::Answer::kQueued);
  EXPECT_THAT(added.removed, ElementsAre(10, 9));
  EXPECT_EQ(queue.tokens(kBestEffort), 800U);
  // The share of the premium tier is four times as large, and not more.
  std::uint64_t id = 11;
  while (queue.add(waiting(++id), kQueueStart).answer == SetQueue::Answer::kQueued) {
  }
  EXPECT_NEAR(static_cast<double>(queue.tokens(kPremium)), 800, 100);
  EXPECT_EQ(queue.add(waiting(++id, kBestEffort, 1000), kQueueStart).answer,
            SetQueue::Answer::kFull);
}

TEST(SetQueue, AFullQueueIsLeftAsItIsByARequestThatItRefuses) {
  SetQueue queue({.requests = 1000, .tokens = 1000});
  for (std::uint64_t id = 1; id <= 4; ++id) queue.add(waiting(id, kBestEffort), kQueueStart);
  for (std::uint64_t id = 5; id <= 10; ++id) queue.add(waiting(id, kStandard), kQueueStart);
  const SetQueue::Added added = queue.add(waiting(11, kPremium, 1800), kQueueStart);
  EXPECT_EQ(added.answer, SetQueue::Answer::kFull);
  EXPECT_THAT(added.removed, IsEmpty());
  EXPECT_EQ(queue.size(), 10U);
}

TEST(SetQueue, KnowsItsOldestRequest) {
  SetQueue queue;
  queue.add(waiting(1), kQueueStart);
  queue.add(waiting(2, kStandard), kQueueStart + seconds(1));
  EXPECT_EQ(queue.oldest_arrival(), kQueueStart);
  queue.cancel(1, kQueueStart + seconds(2));
  EXPECT_EQ(queue.oldest_arrival(), kQueueStart + seconds(1));
  queue.cancel(2, kQueueStart + seconds(2));
  EXPECT_EQ(queue.oldest_arrival(), std::nullopt);
}

TEST(SetQueue, RefusesWhatHasExpired) {
  SetQueue queue;
  EXPECT_EQ(queue.add(waiting(3, kPremium, 100, kQueueStart), kQueueStart + seconds(40)).answer,
            SetQueue::Answer::kTooLate);
}

TEST(SetQueue, CancelIsById) {
  SetQueue queue;
  for (std::uint64_t id = 1; id <= 3; ++id) queue.add(waiting(id), kQueueStart);
  EXPECT_TRUE(queue.cancel(2, kQueueStart));
  EXPECT_FALSE(queue.cancel(2, kQueueStart));
  EXPECT_THAT(take_all(queue, kQueueStart), ElementsAre(1, 3));
}

// 100 tokens leave each second while there are more in the queue; `queue` then has a backlog of
// this many requests of 100 tokens.
void run_at_steady_pace(SetQueue& queue, std::uint64_t backlog) {
  std::uint64_t id = 1'000'000;
  for (std::uint64_t i = 0; i < backlog; ++i) {
    queue.add(waiting(++id), kQueueStart - seconds(100));
  }
  for (int second = 99; second >= 0; --second) {
    queue.take(kQueueStart - seconds(second));
    ASSERT_EQ(queue.add(waiting(++id), kQueueStart - seconds(second)).answer,
              SetQueue::Answer::kQueued);
  }
}

TEST(SetQueue, PredictsTheWait) {
  SetQueue queue;
  run_at_steady_pace(queue, 10);
  EXPECT_NEAR(std::chrono::duration<double>(queue.predicted_wait(kPremium)).count(), 10, 0.6);
  // Nothing waits in the other tiers.
  EXPECT_EQ(queue.predicted_wait(kStandard), base::Duration(0));
  // A third of the pace is that of this tier while the other one has requests: 1,000 tokens.
  queue.add(waiting(1, kStandard, 100), kQueueStart);
  EXPECT_NEAR(std::chrono::duration<double>(queue.predicted_wait(kStandard)).count(), 3, 0.2);
  queue.add(waiting(2, kStandard, 900), kQueueStart);
  EXPECT_NEAR(std::chrono::duration<double>(queue.predicted_wait(kStandard)).count(), 20, 1.2);
}

TEST(SetQueue, RefusesWhatCannotMakeItsDeadline) {
  SetQueue queue;
  run_at_steady_pace(queue, 10);
  EXPECT_EQ(queue.add(waiting(1, kPremium, 100, kQueueStart + seconds(12)), kQueueStart).answer,
            SetQueue::Answer::kQueued);
  // For the order, its deadline is in 7.5 s, which is before those of all others.
  EXPECT_EQ(
      queue.add(waiting(2, kPremium, 100, kQueueStart + milliseconds(100)), kQueueStart).answer,
      SetQueue::Answer::kQueued);
  EXPECT_EQ(
      queue.add(waiting(3, kPremium, 100, kQueueStart + milliseconds(500)), kQueueStart).answer,
      SetQueue::Answer::kTooLate);
  // Nor does it accept what would expire.
  SetQueue slow;
  run_at_steady_pace(slow, 28);
  EXPECT_EQ(slow.add(waiting(1, kPremium, 1000), kQueueStart).answer, SetQueue::Answer::kQueued);
  EXPECT_EQ(slow.add(waiting(2), kQueueStart).answer, SetQueue::Answer::kTooLate);
}

TEST(SetQueue, AnOldPaceRefusesNothing) {
  SetQueue queue;
  run_at_steady_pace(queue, 20);
  // For a minute nothing is served, so that all requests are cancelled.
  const base::Duration later = kQueueStart + seconds(60);
  EXPECT_EQ(queue.size(), 20U);
  while (const auto head = queue.head()) queue.cancel(head->id, later);
  const auto answers_of_two = [&](std::uint64_t id, base::Duration now) {
    const std::vector<SetQueue::Answer> answers{queue.add(waiting(id), now).answer,
                                                queue.add(waiting(id + 1), now).answer};
    take_all(queue, now);
    return answers;
  };
  EXPECT_THAT(answers_of_two(1, later),
              ElementsAre(SetQueue::Answer::kQueued, SetQueue::Answer::kTooLate));
  // The pace of that minute says nothing of the next one, in which no request has to wait.
  EXPECT_THAT(answers_of_two(3, later + seconds(60)), Each(SetQueue::Answer::kQueued));
}

TEST(SetQueue, ANewWorkerMakesThePaceUnknown) {
  SetQueue queue;
  run_at_steady_pace(queue, 28);
  EXPECT_EQ(queue.add(waiting(1, kPremium, 1000), kQueueStart).answer, SetQueue::Answer::kQueued);
  EXPECT_EQ(queue.add(waiting(2), kQueueStart).answer, SetQueue::Answer::kTooLate);
  queue.forget_pace();
  EXPECT_EQ(queue.predicted_wait(kPremium), base::Duration(0));
  EXPECT_EQ(queue.add(waiting(2), kQueueStart).answer, SetQueue::Answer::kQueued);
}

TEST(SetQueue, RetryAfterIsThePredictedWaitAFifthMoreOrLess) {
  SetQueue queue;
  EXPECT_EQ(queue.retry_after(kPremium, 0), seconds(1));
  run_at_steady_pace(queue, 20);
  EXPECT_NEAR(std::chrono::duration<double>(queue.retry_after(kPremium, 0)).count(), 16, 1);
  EXPECT_NEAR(std::chrono::duration<double>(queue.retry_after(kPremium, 1)).count(), 24, 1.5);
  queue.add(waiting(1, kPremium, 1'000'000), kQueueStart);
  EXPECT_EQ(queue.retry_after(kPremium, 0), seconds(60));
}

TEST(SetQueue, ALevelIsForRequestsThatArriveFromNowOn) {
  SetQueue queue;
  queue.add(waiting(1, kStandard), kQueueStart);
  queue.set_level(plan::setting_of(3, 0.4));
  EXPECT_EQ(queue.add(waiting(2, kBestEffort), kQueueStart).answer, SetQueue::Answer::kTierRefused);
  EXPECT_EQ(queue.add(waiting(3, kStandard), kQueueStart).answer, SetQueue::Answer::kQueued);
  queue.set_level(plan::setting_of(0, 1));
  EXPECT_EQ(queue.add(waiting(4, kBestEffort), kQueueStart).answer, SetQueue::Answer::kQueued);
  EXPECT_TRUE(queue.cancel(4, kQueueStart));
  // The second had a timeout of 60 s, and is behind a later one of 30 s.
  queue.add(waiting(5, kStandard), kQueueStart + seconds(20));
  EXPECT_THAT(take_all(queue, kQueueStart + seconds(20)), ElementsAre(1, 5, 3));
}

TEST(SetQueue, HalfAShareIsServedHalfAsOften) {
  SetQueue queue;
  queue.set_level(plan::setting_of(3, 0.4));
  for (std::uint64_t id = 0; id < 1000; ++id) {
    queue.add(waiting(2 * id, kPremium), kQueueStart);
    queue.add(waiting(2 * id + 1, kStandard), kQueueStart);
  }
  int premium = 0;
  for (int i = 0; i < 500; ++i) premium += queue.take(kQueueStart).tier == kPremium ? 1 : 0;
  EXPECT_NEAR(premium, 400, 2);
}

// Random calls, compared with the plain list of what is in the queue.
TEST(SetQueue, LosesAndDuplicatesNothing) {
  std::mt19937 random(1);
  SetQueue queue({.requests = 50, .tokens = 5000, .timeout = seconds(5)});
  std::set<std::uint64_t> expected;
  base::Duration now = kQueueStart;
  for (std::uint64_t id = 1; id < 20'000; ++id) {
    now += milliseconds(random() % 50);
    const QueuedRequest one =
        waiting(id, random() % plan::kTiers, random() % 200, now + milliseconds(random() % 10'000));
    const SetQueue::Added added = queue.add(one, now);
    for (const std::uint64_t removed : added.removed) ASSERT_EQ(expected.erase(removed), 1U);
    if (added.answer == SetQueue::Answer::kQueued) expected.insert(id);
    if (random() % 4 == 0 && queue.head()) {
      const std::uint64_t head = queue.head()->id;
      ASSERT_EQ(queue.take(now).id, head);
      ASSERT_EQ(expected.erase(head), 1U);
    }
    if (random() % 8 == 0) {
      const std::uint64_t cancelled = id - random() % 20;
      ASSERT_EQ(queue.cancel(cancelled, now), expected.erase(cancelled) == 1);
    }
    ASSERT_EQ(queue.size(), expected.size());
  }
  const std::vector<std::uint64_t> rest = take_all(queue, now);
  EXPECT_EQ(std::set<std::uint64_t>(rest.begin(), rest.end()), expected);
  for (std::size_t tier = 0; tier < plan::kTiers; ++tier) EXPECT_EQ(queue.tokens(tier), 0U);
}

TEST(SetQueue, NewLimitsAreForRequestsThatArriveFromNowOn) {
  SetQueue queue({.timeout = seconds(60)});
  for (std::uint64_t id = 1; id <= 3; ++id) {
    queue.add(waiting(id, kPremium, 100, kQueueStart + seconds(20 * id)), kQueueStart);
  }
  queue.set_limits({.requests = 3, .timeout = seconds(1)});
  EXPECT_EQ(queue.add(waiting(4), kQueueStart).answer, SetQueue::Answer::kFull);
  EXPECT_TRUE(queue.cancel(2, kQueueStart));
  EXPECT_EQ(queue.add(waiting(5), kQueueStart).answer, SetQueue::Answer::kQueued);
  EXPECT_THAT(take_all(queue, kQueueStart), ElementsAre(5, 1, 3));
}

TEST(SetQueue, UnderNewLimitsTheWaitBehindTheOthersIsKnown) {
  SetQueue queue;
  run_at_steady_pace(queue, 10);
  queue.set_limits({.timeout = seconds(640)});
  EXPECT_EQ(queue.add(waiting(1, kPremium, 100, kQueueStart + seconds(5)), kQueueStart).answer,
            SetQueue::Answer::kTooLate);
  EXPECT_EQ(queue.add(waiting(2, kPremium, 100, kQueueStart + seconds(15)), kQueueStart).answer,
            SetQueue::Answer::kQueued);
}

TEST(SetQueue, ItsNumbersCanBeSet) {
  SetQueue queue({.min_order = 0, .max_retry_after = seconds(5), .retry_after_spread = 0});
  queue.add(waiting(1, kPremium, 100, kQueueStart + seconds(8)), kQueueStart);
  queue.add(waiting(2, kPremium, 100, kQueueStart + seconds(2)), kQueueStart + seconds(1));
  EXPECT_THAT(take_all(queue, kQueueStart + seconds(1)), ElementsAre(2, 1));
  SetQueue slow({.max_retry_after = seconds(5), .retry_after_spread = 0});
  run_at_steady_pace(slow, 20);
  EXPECT_EQ(slow.retry_after(kPremium, 0), seconds(5));
}

}  // namespace
}  // namespace fo::test
