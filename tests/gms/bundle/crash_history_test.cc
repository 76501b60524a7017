#include "gms/bundle/crash_history.h"

#include <gtest/gtest.h>

namespace fo::gms {
namespace {

TEST(CrashHistory, WaitsLongerEachTimeAndGivesUp) {
  CrashHistory history;
  auto now = CrashHistory::TimePoint{} + std::chrono::hours(1);
  base::Duration before = base::Duration(-1);
  for (std::size_t crash = 1; crash < CrashHistory::kTooMany; ++crash) {
    const auto pause = history.add(now);
    ASSERT_TRUE(pause);
    if (crash == 1) {
      EXPECT_EQ(*pause, base::Duration::zero());
    }
    EXPECT_GT(*pause, before);
    EXPECT_LE(*pause, std::chrono::seconds(10));
    before = *pause;
    now += std::chrono::milliseconds(1);
  }
  EXPECT_EQ(history.add(now), std::nullopt);
}

TEST(CrashHistory, OldCrashesAreForgotten) {
  CrashHistory history;
  auto now = CrashHistory::TimePoint{} + std::chrono::hours(1);
  for (int crash = 0; crash < 100; ++crash) {
    EXPECT_EQ(history.add(now), base::Duration::zero());
    now += CrashHistory::kWindow;
  }
}

}  // namespace
}  // namespace fo::gms
