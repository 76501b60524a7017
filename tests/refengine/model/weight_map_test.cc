#include "refengine/model/weight_map.h"

#include <gtest/gtest.h>

#include <array>

#include "support/failure.h"

namespace fo::refengine {
namespace {

constexpr base::ByteCount kSize = 64;
alignas(4) const std::array<std::byte, kSize> kMemory{};

AllocationBytes find(const gms::AllocationId& id) {
  return id.value() == "a" ? AllocationBytes{kMemory.data(), kSize} : AllocationBytes{};
}

WeightView map_one(const std::string& value, base::ByteCount offset = 0,
                   const std::string& id = "a") {
  return map_weights({{"w", {gms::AllocationId(id), offset, value}}}, find);
}

std::string map_refusal(const std::string& value, base::ByteCount offset = 0,
                        const std::string& id = "a") {
  const test::Failure failure = test::failure_of([&] { map_one(value, offset, id); });
  EXPECT_EQ(failure.status, base::ExitStatus::kBadData);
  return failure.message;
}

TEST(WeightMap, TensorsAreFoundWhereTheMetadataSays) {
  const WeightView view = map_one(
      R"({"dtype": "torch.bfloat16", "shape": [2, 3], "stride": [3, 1], "tensor_type": "parameter"})",
      8);
  const TensorView& tensor = view.at("w");
  EXPECT_EQ(tensor.dtype, DType::kBf16);
  EXPECT_EQ(tensor.shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(tensor.data, kMemory.data() + 8);
}

TEST(WeightMap, AnySpellingAndAMissingStrideWillDo) {
  EXPECT_EQ(map_one(R"({"shape":[16],"dtype":"float32"})").size(), 1u);
  EXPECT_EQ(map_one(R"({"shape":[],"dtype":"torch.float16"})").size(), 1u);
  EXPECT_EQ(map_one(R"({"shape":[1,4],"stride":[9,1],"dtype":"torch.float16"})").size(), 1u);
}

TEST(WeightMap, OtherTypesArePassedOver) {
  EXPECT_TRUE(map_one(R"({"dtype": "torch.float8_e4m3fn", "shape": [2]})").empty());
}

TEST(WeightMap, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(map_refusal(R"({"dtype":"torch.float32","shape":[17]})"),
            "map tensor 'w': longer than its allocation");
  EXPECT_EQ(map_refusal(R"({"dtype":"torch.float32","shape":[16]})", 4),
            "map tensor 'w': longer than its allocation");
  EXPECT_EQ(map_refusal(R"({"dtype":"torch.float32","shape":[4294967296,4294967296,4294967296]})"),
            "map tensor 'w': longer than its allocation");
  EXPECT_EQ(map_refusal(R"({"dtype":"torch.float32","shape":[1]})", 65),
            "map tensor 'w': outside the layout's allocations");
  EXPECT_EQ(map_refusal(R"({"dtype":"torch.float32","shape":[1]})", 0, "b"),
            "map tensor 'w': outside the layout's allocations");
  EXPECT_EQ(map_refusal(R"({"dtype":"torch.float32","shape":[1]})", 2),
            "map tensor 'w': not aligned");
}

TEST(WeightMap, BrokenMetadataIsRefused) {
  for (const char* value :
       {"", "x", "[]", "{}", R"({"dtype":1,"shape":[1]})", R"({"dtype":"torch.float32"})",
        R"({"dtype":"torch.float32","shape":4})", R"({"dtype":"torch.float32","shape":[-1]})",
        R"({"dtype":"torch.float32","shape":[0]})", R"({"dtype":"torch.float32","shape":["1"]})",
        R"({"dtype":"torch.float32","shape":[2,3],"stride":[1,2]})",
        R"({"dtype":"torch.float32","shape":[2,3],"stride":[3]})",
        R"({"dtype":"torch.float32","shape":[2],"stride":"x"})"}) {
    EXPECT_NE(map_refusal(value), "") << value;
  }
}

}  // namespace
}  // namespace fo::refengine
