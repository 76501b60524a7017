#include "weights/workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <span>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "cuda/sim_folder.h"
#include "support.h"
#include "weights/ordered_hash.h"

namespace fo::weights {
namespace {

using base::Error;
using base::ExitStatus;

// Without a device: lanes without staging buffers.
struct Crew {
  explicit Crew(std::size_t threads) : workers({nullptr, 4096, 0, threads}, context) {}
  cuda::PrimaryContext context;
  Workers workers;
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(LaneConfig, HasNoMoreThreadsThanItsRingHasBuffersFor) {
  const cuda::SimFolder gpu;
  const auto driver = cuda::Driver::open("sim");
  const LaneConfig small = lane_config(driver, 256, base::kMiB);
  EXPECT_EQ(small.threads, 8u);
  EXPECT_EQ(small.chunk * small.buffers * small.threads, base::kMiB);
  EXPECT_EQ(lane_config(driver, 4, 1).threads, 1u);
  EXPECT_EQ(lane_config(driver, 4, 64 * base::kMiB).threads, 4u);
  EXPECT_EQ(lane_config(driver, 256, 0).threads, 256u);
}

TEST(Workers, DoEverythingOnceWhateverTheStrand) {
  Crew crew(3);
  std::vector<std::atomic<int>> done(300);
  for (std::size_t i = 0; i < done.size(); ++i) {
    crew.workers.submit([&, i](Lane&) { ++done[i]; }, i % 7);
  }
  int ticks = 0;
  crew.workers.wait([&] { ++ticks; });
  for (const auto& one : done) EXPECT_EQ(one, 1);
  EXPECT_GE(ticks, 1);
}

TEST(Workers, BeginTheTasksOfAStrandInTheirOrder) {
  Crew crew(1);
  std::vector<std::vector<int>> seen(3);
  for (int i = 0; i < 60; ++i) {
    const std::size_t strand = static_cast<std::size_t>(i) % 3;
    crew.workers.submit([&, i, strand](Lane&) { seen[strand].push_back(i); }, strand);
  }
  crew.workers.wait();
  for (const auto& one : seen)
    EXPECT_TRUE(one.size() == 20 && std::is_sorted(one.begin(), one.end()));
}

// Both threads are blocked until everything is submitted. Then the first tasks of both strands end
// only when both run, although others of the first strand were submitted earlier.
TEST(Workers, SpreadOverTheStrands) {
  constexpr auto kLong = std::chrono::seconds(20);
  Crew crew(2);
  std::promise<void> submitted;
  const auto go = submitted.get_future().share();
  for (const std::size_t strand : {8u, 9u}) {
    crew.workers.submit([&](Lane&) { go.wait_for(kLong); }, strand);
  }
  std::promise<void> both;
  const auto meeting = both.get_future().share();
  std::atomic<unsigned> met = 0;
  std::atomic<bool> in_time = true;
  const auto meet = [&](unsigned bit) {
    if ((met.fetch_or(bit) | bit) == 3) both.set_value();
    if (meeting.wait_for(kLong) != std::future_status::ready) in_time = false;
  };
  crew.workers.submit([&](Lane&) { meet(1); }, 0);
  crew.workers.submit([&](Lane&) { meeting.wait_for(kLong); }, 0);
  crew.workers.submit([&](Lane&) { meeting.wait_for(kLong); }, 0);
  crew.workers.submit([&](Lane&) { meet(2); }, 1);
  submitted.set_value();
  crew.workers.wait();
  EXPECT_TRUE(in_time);
}

TEST(Workers, PassOnWhatATaskThrows) {
  Crew crew(2);
  crew.workers.submit([](Lane&) { throw Error(ExitStatus::kIoError, "no"); });
  EXPECT_EQ(status_of([&] { crew.workers.wait(); }), ExitStatus::kIoError);
  EXPECT_EQ(status_of([&] { crew.workers.submit([](Lane&) {}, 3); }), ExitStatus::kIoError);
}

TEST(OrderedHash, IsThatOfThePartsInTheirOrder) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i);
  gms::Sha256 whole;
  whole.add(bytes_of(text));
  const std::string wanted = whole.finish();
  OrderedHash hash;
  Crew crew(4);
  constexpr std::size_t kPart = 61;
  std::atomic<bool> all = true;
  for (std::size_t at = 0; at < text.size(); at += kPart) {
    crew.workers.submit([&, at](Lane&) {
      const auto rest = bytes_of(text).subspan(at);
      if (!hash.add(at, rest.first(std::min(kPart, rest.size())))) all = false;
    });
  }
  crew.workers.wait();
  EXPECT_TRUE(all);
  EXPECT_EQ(hash.finish(), wanted);
}

TEST(OrderedHash, LetsNobodyWaitForAPartThatIsNotComing) {
  OrderedHash hash;
  Crew crew(3);
  std::atomic<int> refused = 0;
  for (const std::size_t at : {10u, 20u}) {
    crew.workers.submit([&, at](Lane&) {
      if (!hash.add(at, bytes_of("0123456789"))) ++refused;
    });
  }
  crew.workers.submit([&](Lane&) { hash.cancel(); });
  crew.workers.wait();
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace fo::weights
