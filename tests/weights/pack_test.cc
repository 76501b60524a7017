#include "weights/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace fo::weights {
namespace {

using base::ByteCount;
using testing::ElementsAre;

PackPlan pack_all(const std::vector<ByteCount>& sizes, ByteCount slab) { return pack(sizes, slab); }

TEST(Pack, AlignsEveryTensorAndAllocatesNoMoreThanIsUsed) {
  const PackPlan plan = pack_all({100, 256, 257, 1}, 4096);
  EXPECT_THAT(plan.allocations, ElementsAre(1025));
  std::vector<ByteCount> offsets;
  for (const Placement& place : plan.placements) offsets.push_back(place.offset);
  EXPECT_THAT(offsets, ElementsAre(0, 256, 512, 1024));
}

TEST(Pack, FillsASlabToItsLastByteAndThenOpensAnother) {
  const PackPlan plan = pack_all({512, 512, 1, 1024}, 1024);
  EXPECT_THAT(plan.allocations, ElementsAre(1024, 1, 1024));
  EXPECT_EQ(plan.placements[2].allocation, 1u);
  EXPECT_EQ(plan.placements[3].allocation, 2u);
  EXPECT_EQ(plan.placements[3].offset, 0u);
}

TEST(Pack, GivesATensorLargerThanTheSlabAnAllocationOfItsOwn) {
  const PackPlan plan = pack_all({100, 5000, 100}, 1024);
  EXPECT_THAT(plan.allocations, ElementsAre(356, 5000));
  EXPECT_EQ(plan.placements[1].allocation, 1u);
  EXPECT_EQ(plan.placements[2].allocation, 0u);
  EXPECT_EQ(plan.placements[2].offset, 256u);
}

TEST(Pack, BeginsWithSmallerAllocations) {
  constexpr ByteCount kTensor = 16 * base::kMiB;
  const PackPlan plan = pack_all(std::vector<ByteCount>(70, kTensor), 512 * base::kMiB);
  EXPECT_THAT(plan.allocations,
              ElementsAre(4 * kTensor, 8 * kTensor, 16 * kTensor, 32 * kTensor, 10 * kTensor));
  // Tensors are never split.
  EXPECT_THAT(pack_all({30 * kTensor, kTensor, 7 * kTensor, kTensor}, 512 * base::kMiB).allocations,
              ElementsAre(30 * kTensor, 8 * kTensor, kTensor));
}

TEST(Pack, WithoutASlabGivesEachItsOwn) {
  EXPECT_THAT(pack_all({1, 0, 3}, 0).allocations, ElementsAre(1, 1, 3));
}

TEST(Pack, KeepsEmptyTensorsInsideAnAllocation) {
  const PackPlan plan = pack_all({256, 0, 0}, 512);
  ASSERT_EQ(plan.placements.size(), 3u);
  for (const Placement& place : plan.placements) {
    EXPECT_LT(place.offset, plan.allocations[place.allocation]);
  }
  EXPECT_THAT(pack_all({0}, 1024).allocations, ElementsAre(1));
}

TEST(Pack, DoesNotOverflowAtTheEnd) {
  constexpr ByteCount kMax = std::numeric_limits<std::int64_t>::max();
  const PackPlan plan = pack_all({kMax, 1, kMax - 100, 2}, kMax);
  EXPECT_EQ(plan.allocations.size(), 4u);
}

}  // namespace
}  // namespace fo::weights
