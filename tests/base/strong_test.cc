#include "base/strong.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

namespace fo::base {
namespace {

TEST(Strong, IsNeitherItsValueNorAnotherStrong) {
  using Other = Strong<struct OtherTag, int>;
  static_assert(!std::is_convertible_v<int, DeviceOrdinal>);
  static_assert(!std::is_convertible_v<DeviceOrdinal, int>);
  static_assert(!std::is_constructible_v<Other, DeviceOrdinal>);
  EXPECT_EQ(DeviceOrdinal().value(), 0);
  EXPECT_LT(DeviceOrdinal(1), DeviceOrdinal(2));
  using OtherText = Strong<struct OtherTextTag, std::string>;
  static_assert(!std::is_convertible_v<std::string, GpuUuid>);
  static_assert(!std::is_convertible_v<GpuUuid, std::string>);
  static_assert(!std::is_convertible_v<GpuUuid, std::string_view>);
  static_assert(!std::is_constructible_v<OtherText, GpuUuid>);
  EXPECT_TRUE(GpuUuid().empty());
  EXPECT_EQ(GpuUuid("GPU-1").value(), "GPU-1");
}

TEST(RoundUp, ReachesTheNextMultiple) {
  EXPECT_EQ(round_up(0, 4096), 0U);
  EXPECT_EQ(round_up(1, 4096), 4096U);
  EXPECT_EQ(round_up(4096, 4096), 4096U);
  EXPECT_EQ(round_up(10, 3), 12U);
}

TEST(RoundUp, IsZeroWhereItDoesNotFit) {
  constexpr ByteCount kMax = std::numeric_limits<ByteCount>::max();
  EXPECT_EQ(round_up(kMax, 2), 0U);
  EXPECT_EQ(round_up(kMax - 1, 2), kMax - 1);
  EXPECT_EQ(round_up(kMax, 1), kMax);
}

}  // namespace
}  // namespace fo::base
