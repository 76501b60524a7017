#include "refengine/model/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fo::refengine {
namespace {

TEST(Dtype, EveryHalfValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if ((half & 0x7c00u) == 0x7c00u) continue;  // infinities and NaN are not made
    EXPECT_EQ(f32_to_f16(f16_to_f32(half)), half);
    EXPECT_EQ(f32_to_bf16(bf16_to_f32(half)), half);
  }
}

TEST(Dtype, HalvesMeanWhatIeeeSays) {
  EXPECT_EQ(f16_to_f32(0x3c00), 1.0f);
  EXPECT_EQ(f16_to_f32(0xc000), -2.0f);
  EXPECT_EQ(f16_to_f32(0x7bff), 65504.0f);
  EXPECT_EQ(f16_to_f32(0x0001), 0x1p-24f);
  EXPECT_EQ(f16_to_f32(0x0400), 0x1p-14f);
  EXPECT_TRUE(std::signbit(f16_to_f32(0x8000)));
  EXPECT_EQ(f16_to_f32(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7e00)));
  EXPECT_EQ(bf16_to_f32(0x3f80), 1.0f);
  EXPECT_EQ(bf16_to_f32(0xc049), -3.140625f);
}

TEST(Dtype, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);             // tie: down to even
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f + 0x1p-23f), 0x3c01);  // above the tie
  EXPECT_EQ(f32_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);         // tie: up to even
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);                    // tie below the least subnormal
  EXPECT_EQ(f32_to_f16(0x1.8p-24f), 0x0002);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);  // rounds to infinity
  EXPECT_EQ(f32_to_f16(-65519.0f), 0xfbff);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
}

TEST(Dtype, NamesAreReadInBothSpellings) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    EXPECT_EQ(parse_torch_dtype(torch_dtype_name(dtype)), dtype);
    EXPECT_EQ(parse_torch_dtype("torch." + std::string(torch_dtype_name(dtype))), dtype);
  }
  EXPECT_EQ(parse_torch_dtype("float8_e4m3fn"), std::nullopt);
  EXPECT_EQ(parse_torch_dtype("torch."), std::nullopt);
}

}  // namespace
}  // namespace fo::refengine
