#include "route/worker/worker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <optional>
#include <string>

#include "base/error.h"
#include "net/address.h"
#include "support/failure.h"

namespace fo::test {
namespace {

using route::TimePoint;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(WorkerPace, TheMeanGapFollowsLaterGapsSlowly) {
  route::Pace pace;
  EXPECT_EQ(pace.mean_gap(), std::nullopt);
  pace.on_token(TimePoint(seconds(1)), std::nullopt);
  EXPECT_EQ(pace.last_token(), TimePoint(seconds(1)));
  EXPECT_EQ(pace.mean_gap(), std::nullopt);
  pace.on_token(TimePoint(seconds(2)), milliseconds(16));
  EXPECT_EQ(pace.mean_gap(), milliseconds(16));
  pace.on_token(TimePoint(seconds(3)), milliseconds(32));
  EXPECT_EQ(pace.mean_gap(), milliseconds(17));
}

TEST(WorkerSlotLimit, IsHalvedByOverloadAndGrowsWithSuccesses) {
  route::SlotLimit slot_limit;
  const TimePoint now(seconds(100));
  EXPECT_EQ(slot_limit.limit(8), 8U);
  slot_limit.on_overload(8, seconds(2), now, now);
  EXPECT_EQ(slot_limit.limit(8), 4U);
  EXPECT_TRUE(slot_limit.is_overloaded(now + seconds(1)));
  EXPECT_FALSE(slot_limit.on_success(8, now + seconds(1))) << "the pause is not over";
  EXPECT_EQ(slot_limit.limit(8), 4U);
  EXPECT_TRUE(slot_limit.on_success(8, now + seconds(2)));
  EXPECT_FALSE(slot_limit.is_overloaded(now + seconds(2)));
  EXPECT_EQ(slot_limit.limit(8), 5U);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(slot_limit.on_success(8, now + seconds(3)));
  EXPECT_EQ(slot_limit.limit(8), 8U);
  EXPECT_FALSE(slot_limit.on_success(8, now + seconds(3)));
}

TEST(WorkerSlotLimit, OneSlotStays) {
  route::SlotLimit slot_limit;
  for (int i = 0; i < 5; ++i) {
    slot_limit.on_overload(8, seconds(1), TimePoint(seconds(i)), TimePoint(seconds(i)));
  }
  EXPECT_EQ(slot_limit.limit(8), 1U);
}

TEST(WorkerSlotLimit, RefusalsOfRequestsThatRanAtOnceHalveItOnce) {
  route::SlotLimit slot_limit;
  const TimePoint now(seconds(100));
  for (int i = 0; i < 5; ++i) {
    slot_limit.on_overload(8, seconds(i), now - seconds(1), now + seconds(i));
  }
  EXPECT_EQ(slot_limit.limit(8), 4U);
  EXPECT_TRUE(slot_limit.is_overloaded(now + seconds(7))) << "the last pause counts";
  slot_limit.on_overload(8, seconds(1), now + seconds(1), now + seconds(5));
  EXPECT_EQ(slot_limit.limit(8), 2U);
}

TEST(WorkerSlotLimit, ALaterPauseDoesNotShortenOne) {
  route::SlotLimit slot_limit;
  slot_limit.on_overload(8, seconds(30), TimePoint(seconds(0)), TimePoint(seconds(0)));
  slot_limit.on_overload(8, seconds(1), TimePoint(seconds(1)), TimePoint(seconds(1)));
  EXPECT_TRUE(slot_limit.is_overloaded(TimePoint(seconds(29))));
}

TEST(WorkerSlotLimit, IsWhatTheEngineRunsOfOursWhileItHasAQueue) {
  struct Case {
    std::uint64_t ours;
    double running;
    double waiting;
    std::uint64_t limit;
  };
  constexpr double kHuge = 1e308;
  for (const Case& one : {Case{12, 4, 8, 4}, Case{6, 4, 2, 4}, Case{64, 64, 1, 63},
                          // Half of the engine's requests are those of another router.
                          Case{6, 4, 8, 2}, Case{5, 4, 6, 2},
                          // At least one slot stays, and no queue changes nothing.
                          Case{1, 4, 96, 1}, Case{3, 0, 3, 1}, Case{0, 4, 8, 1},
                          Case{12, 12, 0, 64}, Case{12, 0, 0, 64},
                          // What no engine should say.
                          Case{12, -4, 8, 1}, Case{12, 4, -8, 64}, Case{12, kHuge, kHuge, 1},
                          Case{12, 4, std::numeric_limits<double>::quiet_NaN(), 64}}) {
    route::SlotLimit slot_limit;
    EXPECT_EQ(slot_limit.on_queue(64, one.ours, one.running, one.waiting), one.limit < 64);
    EXPECT_EQ(slot_limit.limit(64), one.limit)
        << one.ours << " " << one.running << " " << one.waiting;
  }
}

TEST(WorkerSlotLimit, AQueueNeverRaisesItAndEachSuccessDoes) {
  route::SlotLimit slot_limit;
  const TimePoint now(seconds(100));
  EXPECT_TRUE(slot_limit.on_queue(8, 6, 3, 3));
  EXPECT_EQ(slot_limit.limit(8), 3U);
  EXPECT_FALSE(slot_limit.is_overloaded(now));
  EXPECT_FALSE(slot_limit.on_queue(8, 8, 7, 1));
  EXPECT_EQ(slot_limit.limit(8), 3U);
  EXPECT_TRUE(slot_limit.on_success(8, now));
  EXPECT_EQ(slot_limit.limit(8), 4U);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(slot_limit.on_success(8, now));
  EXPECT_FALSE(slot_limit.on_success(8, now));
}

TEST(Worker, IsInWhileItIsReadyAndReachable) {
  route::Worker worker("a", fleet::Health{});
  EXPECT_FALSE(worker.is_available());
  worker.is_reachable = true;
  EXPECT_TRUE(worker.is_available());
  worker.is_stale = true;
  EXPECT_TRUE(worker.is_available()) << "the registry may be away";
  worker.is_drained = true;
  EXPECT_FALSE(worker.is_available());
  worker.is_drained = false;
  for (const auto life : {fleet::Life::kStarting, fleet::Life::kDraining, fleet::Life::kSpare}) {
    worker.life = life;
    EXPECT_FALSE(worker.is_available());
  }
}

TEST(Worker, ItsUrlIsItsAddressAndABeginningOfItsPaths) {
  route::Worker worker("a", fleet::Health{});
  const auto set = [&](const std::string& url) {
    worker.set_url(url, net::parse_url(url), std::nullopt);
  };
  set("http://10.0.0.1:8000/engine");
  EXPECT_EQ(worker.base_path, "/engine");
  EXPECT_EQ(worker.origin.address.host, "10.0.0.1");
  set("http://10.0.0.2:8000");
  EXPECT_EQ(worker.base_path, "");
  EXPECT_EQ(status_of([&] { set("https://10.0.0.3:8000"); }), base::ExitStatus::kUsage);
  EXPECT_EQ(worker.url, "http://10.0.0.2:8000");
  EXPECT_EQ(worker.origin.address.host, "10.0.0.2");
}

TEST(Worker, TheWorseOneOfHealthAndVerdictCounts) {
  using State = fleet::HealthState;
  route::Worker worker("a", fleet::Health{});
  EXPECT_EQ(worker.as_member(seconds(0)).weight, 1);
  worker.verdict = {.health = State::kUnhealthy, .weight = 0};
  EXPECT_EQ(worker.as_member(seconds(0)).weight, 0);
  EXPECT_EQ(worker.as_member(seconds(0)).state, State::kHealthy);
  EXPECT_FALSE(worker.is_convicted());
  worker.verdict = {.health = State::kConvicted, .weight = 0};
  EXPECT_EQ(worker.as_member(seconds(0)).state, State::kConvicted);
  EXPECT_TRUE(worker.is_convicted());
  worker.verdict = {};
  worker.health.apply(fleet::HealthEvent::kFault, seconds(0), 0.5);
  EXPECT_EQ(worker.as_member(seconds(0)).weight, 0.5);
  worker.health.apply(fleet::HealthEvent::kConviction, seconds(0), 0.5);
  EXPECT_TRUE(worker.is_convicted());
}

TEST(Worker, ItsSlotsAreReducedByTheLevelAndByOverload) {
  route::Worker worker("a", fleet::Health{});
  worker.slots = 8;
  EXPECT_EQ(worker.slots_now(1), 8U);
  EXPECT_EQ(worker.slots_now(0.75), 6U);
  worker.slot_limit.on_overload(worker.slots, seconds(1), TimePoint{}, TimePoint{});
  EXPECT_EQ(worker.slots_now(0.75), 4U);
  worker.slots = 1;
  EXPECT_EQ(worker.slots_now(0.5), 1U);
}

TEST(Unavailability, A503AloneForTenSecondsIsAWorkerThatIsOut) {
  using std::chrono::seconds;
  route::Unavailability unavailability;
  const route::TimePoint start{seconds(1000)};
  const auto at = [&](int second) {
    return unavailability.on_unavailable(start + seconds(second), std::nullopt);
  };
  EXPECT_FALSE(at(0));
  EXPECT_FALSE(at(9));
  EXPECT_TRUE(at(10));
  EXPECT_TRUE(at(11));
  unavailability.reset();
  EXPECT_FALSE(at(12)) << "another answer";
  EXPECT_FALSE(at(21));
  EXPECT_FALSE(at(31)) << "a pause of ten seconds";
  EXPECT_FALSE(unavailability.on_unavailable(start + seconds(40), start + seconds(39)))
      << "a token of a stream";
  EXPECT_FALSE(unavailability.on_unavailable(start + seconds(49), start + seconds(39)));
  EXPECT_TRUE(unavailability.on_unavailable(start + seconds(50), start + seconds(39)));
  unavailability.reset();
  EXPECT_FALSE(unavailability.on_unavailable(start, std::nullopt, seconds(2)));
  EXPECT_FALSE(unavailability.on_unavailable(start + seconds(1), std::nullopt, seconds(2)));
  EXPECT_TRUE(unavailability.on_unavailable(start + seconds(2), std::nullopt, seconds(2)));
}

TEST(Worker, OneThatWasJustLostCountsAsCapacityUnlessItMayNotReturn) {
  using std::chrono::seconds;
  route::Worker worker("w", fleet::Health{});
  const route::TimePoint lost{seconds(1000)};
  worker.is_known = true;
  worker.unreachable_since = lost;
  EXPECT_EQ(worker.capacity_weight(lost + seconds(9)), 1);
  EXPECT_EQ(worker.capacity_weight(lost + seconds(10)), 0);
  worker.is_drained = true;
  EXPECT_EQ(worker.capacity_weight(lost), 0);
  worker.is_drained = false;
  worker.life = fleet::Life::kSpare;
  EXPECT_EQ(worker.capacity_weight(lost), 0);
  worker.life = fleet::Life::kReady;
  worker.verdict = {.health = fleet::HealthState::kConvicted, .weight = 0};
  EXPECT_EQ(worker.capacity_weight(lost), 0);
  worker.verdict = {};
  worker.unreachable_since.reset();
  worker.weight = 0.5;
  EXPECT_EQ(worker.capacity_weight(lost), 0.5);
}

TEST(Worker, IsPrivateOnThisMachineAndOverTls) {
  route::Worker worker("w", fleet::Health{});
  const auto is_private = [&](const std::string& url) {
    worker.set_url(url, net::parse_url(url), net::TlsFiles());
    return worker.is_private();
  };
  for (const char* url : {"https://10.0.0.1:8000", "http://127.0.0.1:8000", "http://127.1.2.3:8000",
                          "http://[::1]:8000", "http://localhost:8000"}) {
    EXPECT_TRUE(is_private(url)) << url;
  }
  for (const char* url : {"http://10.0.0.1:8000", "http://engine:8000", "http://127.engine:8000"}) {
    EXPECT_FALSE(is_private(url)) << url;
  }
}

}  // namespace
}  // namespace fo::test
