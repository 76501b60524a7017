#include "route/resume/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

namespace fo::test {
namespace {

using route::ResumeBudget;
using route::RetryBudget;
using namespace std::chrono_literals;

/// The only answer that has begun then.
std::optional<std::uint64_t> begin_next(ResumeBudget& budget) {
  std::optional<std::uint64_t> begun;
  const auto begin = [&](std::uint64_t answer) {
    if (begun) return false;
    begun = answer;
    return true;
  };
  budget.begin_next(begin, 1'000'000);
  return begun;
}

TEST(ResumeBudget, AFifthOfTheSlotsButAtLeastThree) {
  ResumeBudget budget;
  EXPECT_EQ(budget.max_running(), 3U);
  for (const auto& [slots, running] : std::vector<std::pair<std::uint64_t, std::size_t>>{
           {0, 3}, {15, 3}, {19, 3}, {20, 4}, {512, 102}}) {
    budget.set_slots(slots);
    EXPECT_EQ(budget.max_running(), running) << slots;
  }
}

TEST(ResumeBudget, TheOthersWait) {
  ResumeBudget budget;
  EXPECT_EQ(begin_next(budget), std::nullopt);
  for (std::uint64_t answer = 1; answer <= 5; ++answer) budget.add(answer, 0, 10s);
  for (std::uint64_t answer = 1; answer <= 3; ++answer) EXPECT_EQ(begin_next(budget), answer);
  EXPECT_EQ(begin_next(budget), std::nullopt);
  EXPECT_EQ(budget.running(), 3U);
  EXPECT_EQ(budget.waiting(), 2U);
  budget.remove(2);
  EXPECT_EQ(begin_next(budget), 4U);
  EXPECT_EQ(begin_next(budget), std::nullopt);
}

TEST(ResumeBudget, OneThatCanNotBeginDoesNotCount) {
  ResumeBudget budget;
  for (std::uint64_t answer = 1; answer <= 6; ++answer) budget.add(answer, 0, 10s);
  std::vector<std::uint64_t> asked;
  const auto begin = [&](std::uint64_t answer) {
    asked.push_back(answer);
    return answer == 4;
  };
  budget.begin_next(begin, 4);
  EXPECT_EQ(asked, (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(budget.running(), 1U);
  EXPECT_EQ(budget.waiting(), 5U);
  // The search goes on, and begins again after its end.
  asked.clear();
  budget.begin_next(begin, 4);
  budget.begin_next(begin, 2);
  EXPECT_EQ(asked, (std::vector<std::uint64_t>{6, 1, 2}));
}

TEST(ResumeBudget, TheTierThenTheDeadlineThenTheArrivalDecides) {
  ResumeBudget budget;
  budget.set_slots(100);
  budget.add(1, 2, 1s);
  budget.add(2, 0, 9s);
  budget.add(3, 1, 5s);
  budget.add(4, 0, 3s);
  budget.add(5, 1, base::Duration::max());
  budget.add(6, 0, 9s);
  for (const std::uint64_t answer : {4U, 2U, 6U, 3U, 5U, 1U}) EXPECT_EQ(begin_next(budget), answer);
  EXPECT_EQ(begin_next(budget), std::nullopt);
}

TEST(ResumeBudget, OneThatWaitsCanLeave) {
  ResumeBudget budget;
  budget.add(1, 0, 1s);
  budget.add(2, 0, 2s);
  budget.remove(1);
  budget.remove(7);
  EXPECT_EQ(budget.waiting(), 1U);
  EXPECT_EQ(begin_next(budget), 2U);
  EXPECT_EQ(budget.waiting(), 0U);
  // An answer can be resumed more than once.
  budget.remove(2);
  budget.add(2, 0, 2s);
  EXPECT_EQ(begin_next(budget), 2U);
}

TEST(ResumeBudget, WithFewerSlotsNoneBeginsUntilEnoughHaveEnded) {
  ResumeBudget budget;
  budget.set_slots(25);
  for (std::uint64_t answer = 1; answer <= 8; ++answer) budget.add(answer, 0, 1s);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(begin_next(budget));
  budget.set_slots(0);
  EXPECT_EQ(begin_next(budget), std::nullopt);
  budget.remove(1);
  budget.remove(2);
  EXPECT_EQ(begin_next(budget), std::nullopt);
  budget.remove(3);
  EXPECT_EQ(begin_next(budget), 6U);
}

TEST(ResumeBudget, TheBestOfThoseThatWaitIsAlwaysNext) {
  std::mt19937 random(3);
  ResumeBudget budget;
  std::vector<std::tuple<std::size_t, base::Duration, std::uint64_t>> waiting;
  std::vector<std::uint64_t> running;
  std::size_t max_running = 3;
  std::uint64_t answers = 0;
  for (int step = 0; step < 5'000; ++step) {
    switch (random() % 5) {
      case 0:
      case 1: {
        const std::size_t tier = random() % 3;
        const base::Duration deadline = std::chrono::seconds(random() % 4);
        waiting.emplace_back(tier, deadline, ++answers);
        budget.add(answers, tier, deadline);
        break;
      }
      case 2: {
        const std::optional<std::uint64_t> next = begin_next(budget);
        ASSERT_EQ(next.has_value(), !waiting.empty() && running.size() < max_running);
        if (!next) break;
        const auto best = std::ranges::min_element(waiting);
        ASSERT_EQ(*next, std::get<2>(*best));
        waiting.erase(best);
        running.push_back(*next);
        break;
      }
      case 3: {
        const std::uint64_t answer = random() % (answers + 1);
        budget.remove(answer);
        std::erase(running, answer);
        std::erase_if(waiting, [&](const auto& one) { return std::get<2>(one) == answer; });
        break;
      }
      default: {
        const std::uint64_t slots = random() % 100;
        budget.set_slots(slots);
        max_running = std::max<std::size_t>(3, slots / 5);
      }
    }
    ASSERT_EQ(budget.waiting(), waiting.size());
    ASSERT_EQ(budget.running(), running.size());
  }
}

TEST(RetryBudget, TenAreAlwaysAllowed) {
  RetryBudget budget;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(budget.begin_retry(1s));
  EXPECT_FALSE(budget.begin_retry(1s));
  EXPECT_FALSE(budget.begin_retry(10'499ms));
  EXPECT_TRUE(budget.begin_retry(11s));
}

TEST(RetryBudget, AFifthOfTheRequestsIsAllowed) {
  RetryBudget budget;
  for (int i = 0; i < 100; ++i) budget.on_request(1s);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(budget.begin_retry(2s)) << i;
  EXPECT_FALSE(budget.begin_retry(2s));
  for (int i = 0; i < 5; ++i) budget.on_request(3s);
  EXPECT_TRUE(budget.begin_retry(3s));
  EXPECT_FALSE(budget.begin_retry(3s));
  // The requests are forgotten, and then the retries.
  EXPECT_FALSE(budget.begin_retry(11'500ms));
  EXPECT_TRUE(budget.begin_retry(12s));
}

TEST(RetryBudget, APauseForgetsAll) {
  RetryBudget budget;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(budget.begin_retry(0s));
  EXPECT_FALSE(budget.begin_retry(9s));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(budget.begin_retry(1000h));
  EXPECT_FALSE(budget.begin_retry(1000h));
}

TEST(RetryBudget, AgreesWithAListOfTheTimes) {
  std::mt19937 random(5);
  RetryBudget budget;
  std::deque<std::int64_t> requests;
  std::deque<std::int64_t> retries;
  base::Duration now = 0s;
  int allowed = 0;
  int refused = 0;
  for (int step = 0; step < 50'000; ++step) {
    now += std::chrono::milliseconds(random() % 20);
    const std::int64_t slice = now / 500ms;
    const auto forget = [&](std::deque<std::int64_t>& times) {
      while (!times.empty() && times.front() <= slice - 20) times.pop_front();
    };
    forget(requests);
    forget(retries);
    if (random() % 3 != 0) {
      budget.on_request(now);
      requests.push_back(slice);
      continue;
    }
    const bool is_allowed = retries.size() < std::max<std::size_t>(10, requests.size() / 5);
    ASSERT_EQ(budget.begin_retry(now), is_allowed);
    if (is_allowed) retries.push_back(slice);
    ++(is_allowed ? allowed : refused);
  }
  EXPECT_GT(allowed, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(ResumeBudget, ItsPartAndItsMinimumCanBeSet) {
  const route::BudgetSettings settings{.resumes = 0.5, .min_resumes = 2};
  EXPECT_EQ(ResumeBudget::max_running(1, settings), 2U);
  EXPECT_EQ(ResumeBudget::max_running(100, settings), 50U);
}

TEST(RetryBudget, ItsNumbersCanBeSet) {
  RetryBudget budget({.retries = 0.5, .min_retries = 1, .time = 1s});
  EXPECT_TRUE(budget.begin_retry(1s));
  EXPECT_FALSE(budget.begin_retry(1s));
  EXPECT_TRUE(budget.begin_retry(2s));
  for (int i = 0; i < 10; ++i) budget.on_request(10s);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(budget.begin_retry(10s));
  EXPECT_FALSE(budget.begin_retry(10s));
  budget.set_settings({.retries = 1, .min_retries = 1, .time = 1s});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(budget.begin_retry(10s));
  EXPECT_FALSE(budget.begin_retry(10s));
  budget.set_settings({.min_retries = 1, .time = 60s});
  EXPECT_TRUE(budget.begin_retry(10s));
}

}  // namespace
}  // namespace fo::test
