#include "canary/check/baseline.h"

#include <gtest/gtest.h>

#include <limits>

namespace fo::canary {
namespace {

TEST(Baseline, BeginsWithItsFirstValueAndFollowsSlowly) {
  Baseline baseline;
  baseline.add(2);
  EXPECT_EQ(baseline.average, 2);
  baseline.add(4);
  EXPECT_DOUBLE_EQ(baseline.average, 2.2);
  baseline.add(0);
  EXPECT_DOUBLE_EQ(baseline.average, 1.98);
  EXPECT_EQ(baseline.count, 3U);
}

TEST(Baseline, IgnoresWhatIsNoTime) {
  Baseline baseline;
  baseline.add(-1);
  baseline.add(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(baseline.count, 0U);
  baseline.add(2);
  baseline.add(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(baseline.average, 2);
  EXPECT_EQ(baseline.count, 1U);
}

TEST(Baseline, IsExceededByNothingBeforeItsThirdValue) {
  Baseline baseline;
  for (int i = 0; i < 2; ++i) baseline.add(1);
  EXPECT_FALSE(baseline.is_exceeded(1000, 3));
  baseline.add(1);
  EXPECT_TRUE(baseline.is_exceeded(1000, 3));
  EXPECT_FALSE(baseline.is_exceeded(3, 3));
  EXPECT_TRUE(baseline.is_exceeded(3.001, 3));
  EXPECT_FALSE(baseline.is_exceeded(std::numeric_limits<double>::quiet_NaN(), 3));
}

}  // namespace
}  // namespace fo::canary
