#include "route/resume/poison_guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace fo::test {
namespace {

using route::PoisonBodies;
using route::Suspects;
using route::WorkerNumber;
using namespace std::chrono_literals;

using Numbers = std::vector<WorkerNumber>;

TEST(Suspects, ThoseInFlightAtADeathAreSuspects) {
  Suspects suspects;
  suspects.begin(1, 10);
  suspects.begin(2, 10);
  suspects.begin(3, 20);
  suspects.begin(4, 10);
  EXPECT_FALSE(suspects.end_attempt(4));
  suspects.on_death(10);
  EXPECT_TRUE(suspects.is_suspect(1));
  EXPECT_TRUE(suspects.is_suspect(2));
  EXPECT_FALSE(suspects.is_suspect(3));
  EXPECT_FALSE(suspects.is_suspect(4));
  EXPECT_FALSE(suspects.is_suspect(5));
  EXPECT_FALSE(suspects.is_poison(1));
  EXPECT_EQ(suspects.occupied(), Numbers{});
}

TEST(Suspects, TwoDeathsMakePoison) {
  Suspects suspects;
  suspects.begin(1, 10);
  suspects.on_death(10);
  suspects.begin(1, 20);
  suspects.begin(2, 20);
  suspects.on_death(20);
  EXPECT_TRUE(suspects.is_poison(1));
  EXPECT_FALSE(suspects.is_poison(2));
  EXPECT_FALSE(suspects.is_poison(3));
  // The number of a request that has left is not used again, but nothing is kept of it.
  suspects.remove(1);
  EXPECT_FALSE(suspects.is_poison(1));
}

TEST(Suspects, ATokenDoesNotUndoADeath) {
  Suspects suspects;
  suspects.begin(1, 10);
  suspects.on_death(10);
  suspects.begin(1, 20);
  EXPECT_TRUE(suspects.on_token(1));
  EXPECT_FALSE(suspects.is_suspect(1));
  suspects.on_death(20);
  EXPECT_TRUE(suspects.is_poison(1));
}

// It lives with several engines that die of something else.
TEST(Suspects, MoreTokensUndoADeath) {
  Suspects suspects;
  suspects.begin(1, 10);
  suspects.on_death(10);
  suspects.begin(1, 20);
  suspects.on_token(1);
  suspects.on_progress(1);
  suspects.on_death(20);
  EXPECT_FALSE(suspects.is_poison(1));
  suspects.begin(1, 30);
  suspects.on_death(30);
  EXPECT_TRUE(suspects.is_poison(1));
}

TEST(Suspects, ADeathCountsOnceForEachRequest) {
  Suspects suspects;
  suspects.begin(1, 10);
  // The standby at the same address has the same number, and not this request.
  suspects.on_death(10);
  suspects.on_death(10);
  EXPECT_FALSE(suspects.is_poison(1));
  suspects.begin(1, 10);
  suspects.on_death(10);
  EXPECT_TRUE(suspects.is_poison(1));
}

TEST(Suspects, AWorkerIsOccupiedUntilTheFirstToken) {
  Suspects suspects;
  for (const std::uint64_t request : {1U, 2U, 3U}) suspects.begin(request, 10);
  suspects.on_death(10);
  suspects.begin(1, 20);
  suspects.begin(2, 30);
  suspects.begin(4, 40);
  EXPECT_EQ(suspects.occupied(), (Numbers{20, 30}));
  EXPECT_TRUE(suspects.on_token(1));
  EXPECT_EQ(suspects.occupied(), Numbers{30});
  EXPECT_FALSE(suspects.on_token(1));
  EXPECT_FALSE(suspects.on_token(4));
  suspects.begin(3, 20);
  EXPECT_EQ(suspects.occupied(), (Numbers{30, 20}));
}

TEST(Suspects, TheEndOfAnAttemptFreesTheWorkerButNotTheSuspect) {
  Suspects suspects;
  suspects.begin(1, 10);
  suspects.begin(2, 10);
  suspects.on_death(10);
  // Nothing of theirs is with a worker now.
  EXPECT_FALSE(suspects.end_attempt(1));
  EXPECT_FALSE(suspects.on_token(1));
  EXPECT_TRUE(suspects.is_suspect(1));
  suspects.begin(1, 20);
  EXPECT_TRUE(suspects.end_attempt(1));
  EXPECT_TRUE(suspects.is_suspect(1));
  EXPECT_EQ(suspects.occupied(), Numbers{});
  // The worker's death is not this request's.
  suspects.on_death(20);
  EXPECT_FALSE(suspects.is_poison(1));
  suspects.begin(2, 30);
  EXPECT_TRUE(suspects.remove(2));
  EXPECT_FALSE(suspects.remove(2));
  EXPECT_FALSE(suspects.is_suspect(2));
  EXPECT_EQ(suspects.occupied(), Numbers{});
}

// Three workers get the suspects of a death one at a time each, as a dispatcher does: the poison
// among them kills one more worker, and no other request is taken for poison.
TEST(Suspects, OnlyThePoisonIsFound) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Suspects suspects;
    std::vector<std::uint64_t> waiting{1, 2, 3, 4, 5, 6, 7, 8, 9};
    const std::uint64_t poison = waiting[random() % waiting.size()];
    for (const std::uint64_t request : waiting) suspects.begin(request, 0);
    suspects.on_death(0);
    std::ranges::shuffle(waiting, random);
    int deaths = 0;
    while (!waiting.empty()) {
      Numbers sent;
      for (WorkerNumber worker = 0; worker < 3 && worker < waiting.size(); ++worker) {
        suspects.begin(waiting[worker], worker);
        sent.push_back(worker);
      }
      Numbers occupied = suspects.occupied();
      std::ranges::sort(occupied);
      ASSERT_EQ(occupied, sent);
      for (const WorkerNumber worker : sent) {
        const std::uint64_t request = waiting.front();
        waiting.erase(waiting.begin());
        if (request == poison) {
          suspects.on_death(worker);
          ++deaths;
        } else {
          ASSERT_TRUE(suspects.on_token(request));
        }
        ASSERT_EQ(suspects.is_poison(request), request == poison);
        suspects.remove(request);
      }
    }
    ASSERT_EQ(deaths, 1);
  }
}

TEST(PoisonBodies, ABodyIsRefusedForTenMinutes) {
  PoisonBodies bodies;
  EXPECT_FALSE(bodies.contains("key", "body", 0s));
  bodies.add("key", "body", 5s);
  EXPECT_TRUE(bodies.contains("key", "body", 5s));
  EXPECT_TRUE(bodies.contains("key", "body", 604s));
  EXPECT_FALSE(bodies.contains("key", "body", 605s));
  // Poison again.
  bodies.add("key", "body", 600s);
  EXPECT_TRUE(bodies.contains("key", "body", 1199s));
  EXPECT_FALSE(bodies.contains("key", "body", 1200s));
}

TEST(PoisonBodies, AnotherClientsRequestIsAnotherOne) {
  PoisonBodies bodies;
  bodies.add("key", "body", 0s);
  EXPECT_FALSE(bodies.contains("key2", "body", 0s));
  EXPECT_FALSE(bodies.contains("key", "body2", 0s));
  EXPECT_FALSE(bodies.contains("keyb", "ody", 0s));
  EXPECT_FALSE(bodies.contains("", "keybody", 0s));
}

TEST(PoisonBodies, OtherRequestsThatEndWellAcquitABody) {
  PoisonBodies bodies;
  bodies.on_success("key", "body");
  std::optional<PoisonBodies::Watch> watch(std::in_place, bodies, "key", "body");
  for (unsigned ended = 0; ended < PoisonBodies::kAcquittals; ++ended) {
    EXPECT_FALSE(watch->is_acquitted()) << ended;
    bodies.on_success("key2", "body");
    bodies.on_success("key", "body2");
    bodies.on_success("key", "body");
  }
  EXPECT_TRUE(watch->is_acquitted());
  // Those that ended before another request's first death say nothing about that one.
  const PoisonBodies::Watch later(bodies, "key", "body");
  EXPECT_FALSE(later.is_acquitted());
  watch.reset();
  EXPECT_FALSE(bodies.contains("key", "body", 0s));
}

TEST(PoisonBodies, RequestsThatWereInFlightAcquitARefusedBody) {
  PoisonBodies bodies;
  {
    const PoisonBodies::Watch watch(bodies, "", "body");
    bodies.on_success("", "body");
    bodies.add("", "body", 0s);
  }
  for (unsigned ended = 0; ended < PoisonBodies::kAcquittals; ++ended) {
    EXPECT_TRUE(bodies.contains("", "body", 1s)) << ended;
    bodies.on_success("", "body");
  }
  EXPECT_FALSE(bodies.contains("", "body", 1s));
}

TEST(PoisonBodies, AWatchedBodyIsRefusedAndForgottenLikeOthers) {
  PoisonBodies bodies(1);
  const PoisonBodies::Watch watch(bodies, "", "a");
  EXPECT_FALSE(bodies.contains("", "a", 0s));
  bodies.add("", "a", 0s);
  EXPECT_TRUE(bodies.contains("", "a", 0s));
  bodies.add("", "b", 1s);
  EXPECT_FALSE(bodies.contains("", "a", 1s));
  EXPECT_TRUE(bodies.contains("", "b", 1s));
  bodies.add("", "a", 601s);
  EXPECT_TRUE(bodies.contains("", "a", 601s));
  EXPECT_FALSE(bodies.contains("", "b", 601s));
}

TEST(PoisonBodies, AnotherRouterRefusesTheSameBodies) {
  PoisonBodies bodies;
  bodies.add("key", "body", 100s);
  const PoisonBodies::Watch watch(bodies, "", "a");
  EXPECT_EQ(bodies.ages(160s).size(), 1U);
  PoisonBodies next;
  // Its clock may be another one.
  next.add(bodies.ages(160s), 5s);
  EXPECT_TRUE(next.contains("key", "body", 544s));
  EXPECT_FALSE(next.contains("key", "body", 545s));
  EXPECT_FALSE(next.contains("", "body", 6s));
  for (unsigned ended = 0; ended < PoisonBodies::kAcquittals; ++ended)
    next.on_success("key", "body");
  EXPECT_FALSE(next.contains("key", "body", 6s));
}

TEST(PoisonBodies, TheOldestIsForgotten) {
  PoisonBodies bodies(2);
  bodies.add("", "z", 1s);
  bodies.add("", "a", 2s);
  bodies.add("", "z", 3s);
  EXPECT_TRUE(bodies.contains("", "a", 3s));
  bodies.add("", "m", 4s);
  EXPECT_FALSE(bodies.contains("", "a", 4s));
  EXPECT_TRUE(bodies.contains("", "z", 4s));
  EXPECT_TRUE(bodies.contains("", "m", 4s));
}

TEST(PoisonSettings, TheDeathsAndTheTimeCanBeSet) {
  Suspects suspects({.deaths = 3});
  for (std::uint64_t worker = 1; worker <= 3; ++worker) {
    EXPECT_FALSE(suspects.is_poison(1));
    suspects.begin(1, worker);
    suspects.on_death(worker);
  }
  EXPECT_TRUE(suspects.is_poison(1));
  PoisonBodies bodies;
  bodies.set_settings({.time = 5s});
  bodies.add("key", "body", 0s);
  EXPECT_TRUE(bodies.contains("key", "body", 4s));
  EXPECT_FALSE(bodies.contains("key", "body", 5s));
}

}  // namespace
}  // namespace fo::test
