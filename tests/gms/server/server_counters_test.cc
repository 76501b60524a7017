#include "gms/server/server_counters.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <csignal>

#include "os/process/process.h"

namespace fo::gms {
namespace {

using namespace std::chrono_literals;

constexpr base::Duration kAges = 20s;

std::uint64_t sum_of(const auto& numbers) {
  std::uint64_t sum = 0;
  numbers.for_each([&](auto, const auto& number) { sum += number.get(); });
  return sum;
}

std::uint64_t count_of(const auto& histogram) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < histogram.kBuckets; ++i) count += histogram.count(i);
  return count;
}

// A process that counts for ever, and its page.
class Counting : public testing::Test {
 protected:
  // Returns once the process has counted something.
  os::Child start(const CounterPage& page) {
    os::Child child = os::fork_child(
        [&] {
          page->up.set(1);
          for (std::uint64_t i = 1;; ++i) {
            page->sessions[Grant::kRo].set(i % 7 + 1);
            page->observe_request(20us, RequestResult::kAnswered);
          }
          return 0;
        },
        {.parent_death_signal = SIGKILL});
    const std::uint64_t before = page->requests[RequestResult::kAnswered].get();
    const base::Deadline deadline = base::Deadline::after(kAges);
    while (page->requests[RequestResult::kAnswered].get() == before && !deadline.expired()) {
      ::sched_yield();
    }
    return child;
  }
  static void kill(const os::Child& child) {
    child.signal(SIGKILL);
    EXPECT_EQ(child.wait(base::Deadline::after(kAges)), 128 + SIGKILL);
  }
};

TEST(ServerCounters, AreZeroInFreshMemory) {
  const CounterPage page = create_counter_page();
  EXPECT_EQ(page->up.get(), 0u);
  EXPECT_EQ(sum_of(page->sessions), 0u);
  EXPECT_EQ(sum_of(page->dropped_connections), 0u);
  EXPECT_EQ(count_of(page->request_latency), 0u);
  EXPECT_EQ(page->request_latency.sum(), 0ns);
}

TEST(ServerCounters, EveryEnumeratorHasItsOwnNumber) {
  const CounterPage page = create_counter_page();
  for (const Grant grant : {Grant::kRw, Grant::kRo, Grant::kRwData}) {
    page->granted(grant, 0ns);
    EXPECT_EQ(page->grants[grant].get(), 1u);
  }
  for (const LockType type :
       {LockType::kRw, LockType::kRo, LockType::kRwOrRo, LockType::kRwDataOrRw}) {
    page->lock_timeouts[type].add();
    EXPECT_EQ(page->lock_timeouts[type].get(), 1u);
  }
  EXPECT_EQ(sum_of(page->grants), 3u);
  EXPECT_EQ(sum_of(page->lock_timeouts), 4u);
  page->dropped(DropReason::kTooManyConnections);
  EXPECT_EQ(page->dropped_connections[DropReason::kTooManyConnections].get(), 1u);
  EXPECT_EQ(page->dropped_connections[DropReason::kRefusedUser].get(), 0u);
}

TEST(ServerCounters, HistogramBoundsAreInclusiveAndTheRestHasABucket) {
  const CounterPage page = create_counter_page();
  auto& latency = page->request_latency;
  latency.observe(-5ns);
  latency.observe(10us);
  latency.observe(10us + 1ns);
  latency.observe(10s);
  latency.observe(10s + 1ns);
  latency.observe(std::chrono::hours(24));
  EXPECT_EQ(latency.count(0), 2u);
  EXPECT_EQ(latency.count(1), 1u);
  EXPECT_EQ(latency.count(kRequestBounds.size() - 1), 1u);
  EXPECT_EQ(latency.count(kRequestBounds.size()), 2u);
  EXPECT_EQ(latency.sum(), 20us + 1ns + 20s + 1ns + std::chrono::hours(24));
  EXPECT_TRUE(std::is_sorted(kRequestBounds.begin(), kRequestBounds.end()));
  EXPECT_TRUE(std::is_sorted(kLockWaitBounds.begin(), kLockWaitBounds.end()));
}

TEST_F(Counting, NumbersOutliveAKilledWriterAndGoOnWithTheNext) {
  const CounterPage page = create_counter_page();
  const CounterPage neighbour = create_counter_page();
  kill(start(page));
  const std::uint64_t first = page->requests[RequestResult::kAnswered].get();
  EXPECT_GT(first, 0u);
  // The event that was being counted may be missing in the other numbers.
  EXPECT_GE(first, count_of(page->request_latency));
  EXPECT_LE(first, count_of(page->request_latency) + 1);
  EXPECT_EQ(page->up.get(), 1u);

  page->restarts.add();
  page->reset_gauges();
  EXPECT_EQ(page->up.get(), 0u);
  EXPECT_EQ(sum_of(page->sessions), 0u);
  EXPECT_EQ(page->requests[RequestResult::kAnswered].get(), first);

  kill(start(page));
  EXPECT_GT(page->requests[RequestResult::kAnswered].get(), first);
  EXPECT_EQ(page->up.get(), 1u);
  EXPECT_EQ(page->restarts.get(), 1u);
  EXPECT_EQ(neighbour->up.get(), 0u);
}

TEST_F(Counting, AnotherProcessReadsWhileItIsWritten) {
  const CounterPage page = create_counter_page();
  const os::Child writer = start(page);
  const os::Child reader = os::fork_child([&] {
    const std::uint64_t seen = page->requests[RequestResult::kAnswered].get();
    const base::Deadline deadline = base::Deadline::after(kAges);
    while (page->requests[RequestResult::kAnswered].get() == seen) {
      if (deadline.expired()) return 1;
    }
    return page->up.get() == 1 ? 0 : 2;
  });
  EXPECT_EQ(reader.wait(base::Deadline::after(kAges)), 0);
  kill(writer);
}

}  // namespace
}  // namespace fo::gms
