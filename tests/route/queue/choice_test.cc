#include "route/queue/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace fo::test {
namespace {

using route::AnswerLengths;
using route::Candidate;
using route::Choice;
using route::Policy;
using route::prefix_hashes;
using route::Room;
using route::WorkerNumber;
using testing::ElementsAre;
using testing::Gt;
using testing::Pair;

Choice choice_of(Policy policy, WorkerNumber workers, const Room& room = {}) {
  Choice choice(policy, 1);
  for (WorkerNumber worker = 0; worker < workers; ++worker) choice.set_worker(worker, room);
  return choice;
}

// Chooses and begins.
std::optional<WorkerNumber> place_on(Choice& choice, const Candidate& request) {
  const auto worker = choice.choose(request);
  if (worker) choice.begin(*worker, request);
  return worker;
}

TEST(PrefixHashes, AreThoseOfWholeBeginnings) {
  const std::string text(100'000, 'x');
  EXPECT_EQ(prefix_hashes(text.substr(0, 255)).size(), 0U);
  EXPECT_EQ(prefix_hashes(text.substr(0, 256)).size(), 1U);
  EXPECT_EQ(prefix_hashes(text.substr(0, 4095)).size(), 2U);
  EXPECT_EQ(prefix_hashes(text).size(), 5U);
  EXPECT_EQ(prefix_hashes(text), prefix_hashes(text.substr(0, 65'536)));
  std::string other = text;
  other[2000] = 'y';
  EXPECT_EQ(prefix_hashes(text)[1], prefix_hashes(other)[1]);
  for (std::size_t i = 2; i < 5; ++i) EXPECT_NE(prefix_hashes(text)[i], prefix_hashes(other)[i]);
}

TEST(Choice, TheLeastLoadedByTokensAndWeight) {
  Choice choice = choice_of(Policy::kLeast, 2);
  choice.set_worker(2, {.weight = 0.5});
  choice.begin(0, {.tokens = 300});
  choice.begin(1, {.tokens = 200});
  choice.begin(2, {.tokens = 99});
  EXPECT_EQ(choice.choose({.tokens = 1}), 2U);
  choice.begin(2, {.tokens = 2});
  EXPECT_EQ(choice.choose({.tokens = 1}), 1U);
  choice.end(0, 300);
  EXPECT_EQ(choice.choose({.tokens = 1}), 0U);
}

// How often each worker gets one of 3,000 requests that do not overlap.
std::map<WorkerNumber, int> counts_of_sequence(Choice& choice) {
  std::map<WorkerNumber, int> counts;
  for (int i = 0; i < 3000; ++i) {
    const WorkerNumber worker = *place_on(choice, {.tokens = 100});
    ++counts[worker];
    choice.end(worker, 100);
  }
  return counts;
}

TEST(Choice, IdleWorkersAreChosenByTheirWeight) {
  Choice choice = choice_of(Policy::kLeast, 3);
  choice.set_worker(0, {.weight = 0.5});
  EXPECT_THAT(counts_of_sequence(choice), ElementsAre(Pair(1, Gt(900)), Pair(2, Gt(900))));
  // It gets its part of what is in flight at the same time.
  std::map<WorkerNumber, int> at_once;
  for (int i = 0; i < 500; ++i) ++at_once[*place_on(choice, {.tokens = 100})];
  EXPECT_THAT(at_once, ElementsAre(Pair(0, 100), Pair(1, 200), Pair(2, 200)));
}

TEST(Choice, RequestsAreSpreadOverIdleWorkers) {
  for (const WorkerNumber workers : {3U, 16U, 17U}) {
    Choice choice = choice_of(Policy::kLeast, workers);
    for (const auto& [worker, count] : counts_of_sequence(choice)) {
      EXPECT_NEAR(count, 3000 / static_cast<double>(workers), 100) << worker;
    }
  }
}

TEST(Choice, AWorkerWithoutAFreeSlotHasNoRoom) {
  for (const Policy policy : {Policy::kRoundRobin, Policy::kLeast, Policy::kPrefix}) {
    Choice choice = choice_of(policy, 2, {.slots = 1});
    EXPECT_TRUE(place_on(choice, {.tokens = 1}));
    const auto second = place_on(choice, {.tokens = 1});
    ASSERT_TRUE(second);
    EXPECT_EQ(choice.choose({.tokens = 1}), std::nullopt);
    choice.end(*second, 1);
    EXPECT_EQ(choice.choose({.tokens = 1}), second);
  }
}

TEST(Choice, AWorkerWithoutEnoughFreeTokensHasNoRoom) {
  Choice choice = choice_of(Policy::kLeast, 1, {.kv_tokens = 1000});
  choice.begin(0, {.tokens = 600});
  EXPECT_EQ(choice.choose({.tokens = 401}), std::nullopt);
  EXPECT_EQ(choice.choose({.tokens = 400}), 0U);
}

TEST(Choice, ARequestLargerThanAllCachesGetsAnIdleWorker) {
  Choice choice = choice_of(Policy::kLeast, 2, {.kv_tokens = 1000});
  choice.begin(0, {.tokens = 10});
  EXPECT_EQ(choice.choose({.tokens = 5000}), 1U);
  choice.begin(1, {.tokens = 10});
  EXPECT_EQ(choice.choose({.tokens = 5000}), std::nullopt);
  // It waits for a worker that has room enough.
  choice.set_worker(2, {.kv_tokens = 6000});
  choice.begin(2, {.tokens = 2000});
  choice.end(1, 10);
  EXPECT_EQ(choice.choose({.tokens = 5000}), std::nullopt);
  choice.end(2, 2000);
  EXPECT_EQ(choice.choose({.tokens = 5000}), 2U);
}

TEST(Choice, AWorkerWithoutWeightGetsNothing) {
  Choice choice = choice_of(Policy::kPrefix, 2);
  choice.set_worker(0, {.weight = 0});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(place_on(choice, {.tokens = 1}), 1U);
  choice.remove_worker(1);
  EXPECT_EQ(choice.choose({.tokens = 1}), std::nullopt);
}

TEST(Choice, ExcludedWorkersGetNothing) {
  const std::vector<WorkerNumber> excluded{0, 2};
  for (const Policy policy : {Policy::kRoundRobin, Policy::kLeast, Policy::kPrefix}) {
    Choice choice = choice_of(policy, 3);
    EXPECT_EQ(choice.choose({.tokens = 1, .excluded = excluded}), 1U);
    choice.remove_worker(1);
    EXPECT_EQ(choice.choose({.tokens = 1, .excluded = excluded}), std::nullopt);
  }
}

TEST(Choice, RoundRobinTakesTurns) {
  Choice choice = choice_of(Policy::kRoundRobin, 3);
  std::vector<WorkerNumber> chosen;
  for (int i = 0; i < 6; ++i) chosen.push_back(*place_on(choice, {.tokens = 1000}));
  EXPECT_THAT(chosen, ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(Choice, RoundRobinPassesOverALowWeight) {
  Choice choice = choice_of(Policy::kRoundRobin, 3);
  choice.set_worker(1, {.weight = 0.5});
  const std::map<WorkerNumber, int> counts = counts_of_sequence(choice);
  EXPECT_NEAR(counts.at(0), 1200, 100);
  EXPECT_NEAR(counts.at(1), 600, 100);
  EXPECT_NEAR(counts.at(2), 1200, 100);
}

TEST(Choice, APromptGoesToTheWorkerThatHasItsBeginning) {
  Choice choice = choice_of(Policy::kPrefix, 3);
  const std::vector<std::uint64_t> first = prefix_hashes(std::string(2000, 'a'));
  const std::vector<std::uint64_t> longer = prefix_hashes(std::string(5000, 'a'));
  choice.begin(2, {.tokens = 100, .prefixes = first});
  choice.end(2, 100);
  EXPECT_EQ(choice.choose({.tokens = 100, .prefixes = longer}), 2U);
  // The longest beginning counts, and of equal ones the last.
  choice.begin(1, {.tokens = 100, .prefixes = longer});
  choice.end(1, 100);
  choice.begin(2, {.tokens = 100, .prefixes = first});
  choice.end(2, 100);
  EXPECT_EQ(choice.choose({.tokens = 100, .prefixes = longer}), 1U);
  EXPECT_EQ(choice.choose({.tokens = 100, .prefixes = first}), 2U);
  // A worker that is gone has no cache; the next longest beginning is on another one.
  choice.remove_worker(1);
  EXPECT_EQ(choice.choose({.tokens = 100, .prefixes = longer}), 2U);
}

TEST(Choice, ABeginningDoesNotOverloadItsWorker) {
  Choice choice = choice_of(Policy::kPrefix, 4);
  const std::vector<std::uint64_t> prefix = prefix_hashes(std::string(300, 'a'));
  const Candidate request{.tokens = 100, .prefixes = prefix};
  std::map<WorkerNumber, int> counts;
  for (int i = 0; i < 400; ++i) ++counts[*place_on(choice, request)];
  for (const auto& [worker, count] : counts) EXPECT_LE(count, 127) << worker;
  // Only a worker without room is left out at once; then the next longest beginning counts.
  Choice full = choice_of(Policy::kPrefix, 2, {.slots = 1});
  full.begin(1, request);
  EXPECT_EQ(full.choose(request), 0U);
  Choice three = choice_of(Policy::kPrefix, 3, {.slots = 1});
  const std::vector<std::uint64_t> longer = prefix_hashes(std::string(2000, 'a'));
  three.begin(1, {.tokens = 0, .prefixes = prefix});
  three.end(1, 0);
  three.begin(2, {.tokens = 0, .prefixes = std::span(longer).subspan(1)});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(three.choose({.tokens = 1, .prefixes = longer}), 1U);
}

TEST(Choice, TheLeastRecentlyUsedBeginningsAreForgotten) {
  Choice choice = choice_of(Policy::kPrefix, 2);
  const auto run_on = [&](WorkerNumber worker, std::uint64_t hash) {
    const std::vector<std::uint64_t> prefixes{hash};
    choice.begin(worker, {.tokens = 1, .prefixes = prefixes});
    choice.end(worker, 1);
  };
  const auto chosen_for = [&](std::uint64_t hash) {
    const std::vector<std::uint64_t> prefixes{hash};
    return choice.choose({.tokens = 1, .prefixes = prefixes});
  };
  run_on(1, 1);
  run_on(1, 2);
  for (std::uint64_t hash = 10; hash < 100'008; ++hash) run_on(0, hash);
  EXPECT_EQ(chosen_for(1), 1U);
  run_on(1, 1);
  run_on(0, 5);
  // Without a known beginning, the first of two idle workers is chosen.
  EXPECT_EQ(chosen_for(2), 0U);
  EXPECT_EQ(chosen_for(1), 1U);
}

TEST(Choice, TwoDrawsOfManyWorkersBalanceTheLoad) {
  Choice choice = choice_of(Policy::kLeast, 200);
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(place_on(choice, {.tokens = 100}));
  for (WorkerNumber worker = 0; worker < 200; ++worker) {
    // One draw would leave some of 100 ± 30.
    EXPECT_NEAR(static_cast<double>(choice.requests_on(worker)), 100, 5) << worker;
  }
}

TEST(Choice, TheLastFreeWorkerOfManyIsFound) {
  Choice choice = choice_of(Policy::kLeast, 1000, {.slots = 1});
  std::map<WorkerNumber, int> counts;
  for (int i = 0; i < 1000; ++i) {
    const auto worker = place_on(choice, {.tokens = 100});
    ASSERT_TRUE(worker);
    ++counts[*worker];
  }
  EXPECT_EQ(counts.size(), 1000U);
  EXPECT_EQ(choice.choose({.tokens = 100}), std::nullopt);
}

TEST(Choice, WorkersMayComeAndGo) {
  Choice choice = choice_of(Policy::kLeast, 3);
  choice.begin(0, {.tokens = 50});
  choice.begin(2, {.tokens = 10});
  choice.remove_worker(0);
  choice.remove_worker(0);
  choice.end(0, 50);
  EXPECT_EQ(choice.workers(), 2U);
  EXPECT_EQ(choice.requests_on(2), 1U);
  // A change of its room leaves what runs on the worker.
  choice.set_worker(2, {.slots = 1});
  choice.begin(1, {.tokens = 100});
  EXPECT_EQ(choice.choose({.tokens = 1}), 1U);
  choice.end(2, 10);
  EXPECT_EQ(choice.choose({.tokens = 1}), 2U);
}

TEST(Choice, AWorkerThatComesBackHasWhatStillRunsOnIt) {
  Choice choice = choice_of(Policy::kLeast, 1, {.slots = 1});
  choice.begin(0, {.tokens = 50});
  choice.remove_worker(0);
  choice.set_worker(0, {.slots = 1});
  EXPECT_EQ(choice.requests_on(0), 1U);
  choice.end(0, 50);
  EXPECT_EQ(choice.requests_on(0), 0U);
  EXPECT_EQ(choice.choose({.tokens = 1}), 0U);
  // What ends while it is away is not counted when it comes back.
  choice.begin(0, {.tokens = 50});
  choice.remove_worker(0);
  choice.end(0, 50);
  choice.set_worker(0, {.slots = 1});
  EXPECT_EQ(choice.choose({.tokens = 1}), 0U);
}

// Random calls. A worker with a free slot is found exactly when there is one.
TEST(Choice, FindsAWorkerWheneverThereIsOne) {
  std::mt19937 random(1);
  Choice choice(Policy::kLeast, 1);
  std::map<WorkerNumber, Room> rooms;
  std::map<WorkerNumber, std::uint64_t> running;
  for (int i = 0; i < 20'000; ++i) {
    const WorkerNumber worker = random() % 4;
    const auto action = random() % 8;
    if (action == 0) {
      rooms[worker] = {.slots = random() % 4, .weight = static_cast<double>(random() % 2)};
      choice.set_worker(worker, rooms[worker]);
    } else if (action == 1) {
      rooms.erase(worker);
      choice.remove_worker(worker);
    } else if (action < 5 && running[worker] > 0) {
      --running[worker];
      choice.end(worker, 1);
    } else {
      const bool has_one = std::ranges::any_of(rooms, [&](const auto& one) {
        return one.second.weight > 0 && running[one.first] < one.second.slots;
      });
      ASSERT_EQ(choice.has_room(1), has_one);
      const auto placed = place_on(choice, {.tokens = 1});
      ASSERT_EQ(placed.has_value(), has_one);
      if (placed) ++running[*placed];
    }
  }
}

TEST(AnswerLengths, StartsWithAGuess) {
  AnswerLengths lengths;
  for (int i = 0; i < 19; ++i) lengths.add(10);
  EXPECT_EQ(lengths.p95(), 1024U);
  lengths.add(10);
  EXPECT_LT(lengths.p95(), 13U);
}

TEST(AnswerLengths, IsTheNinetyFifthPercentile) {
  AnswerLengths lengths;
  for (std::uint64_t tokens = 1; tokens <= 1000; ++tokens) lengths.add(tokens);
  EXPECT_GE(lengths.p95(), 950U);
  EXPECT_LE(lengths.p95(), 950U * 12 / 10);
  // Answers of a new kind replace the old ones.
  for (int i = 0; i < 50'000; ++i) lengths.add(100);
  EXPECT_GE(lengths.p95(), 100U);
  EXPECT_LE(lengths.p95(), 120U);
  AnswerLengths extreme;
  for (int i = 0; i < 100; ++i) extreme.add(i % 2 == 0 ? 0 : UINT64_MAX);
  EXPECT_GT(extreme.p95(), 1'000'000U);
}

TEST(Choice, ItsNumbersCanBeSet) {
  const std::vector<std::uint64_t> first = prefix_hashes(std::string(300, 'a'));
  const std::vector<std::uint64_t> second = prefix_hashes(std::string(300, 'b'));
  Choice choice(Policy::kPrefix, 1, {.known_prefixes = 1, .max_load = 2});
  for (WorkerNumber worker = 0; worker < 2; ++worker) choice.set_worker(worker, {});
  const Candidate request{.tokens = 100, .prefixes = first};
  // With the request, the mean is 200.
  choice.begin(1, {.tokens = 300, .prefixes = first});
  EXPECT_EQ(choice.choose(request), 1U);
  choice.set_policy(Policy::kPrefix, {.known_prefixes = 1});
  EXPECT_EQ(choice.choose(request), 0U);
  choice.end(1, 300);
  EXPECT_EQ(choice.choose(request), 1U);
  choice.begin(1, {.tokens = 10});
  EXPECT_EQ(choice.choose(request), 1U);
  choice.begin(0, {.tokens = 1, .prefixes = second});
  choice.end(0, 1);
  EXPECT_EQ(choice.choose(request), 0U) << "the least loaded one";
}

TEST(AnswerLengths, TheFirstGuessCanBeSet) {
  AnswerLengths lengths;
  EXPECT_EQ(lengths.p95(7), 7U);
  for (int i = 0; i < 20; ++i) lengths.add(100);
  EXPECT_GE(lengths.p95(7), 100U);
}

}  // namespace
}  // namespace fo::test
