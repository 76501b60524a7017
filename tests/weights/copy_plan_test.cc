#include "weights/copy_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "weights/file/weight_file.h"

namespace fo::weights {
namespace {

using base::ByteCount;

// Tensors packed in the order of a file, from byte `begin` on.
std::vector<CopyItem> packed(const std::vector<ByteCount>& sizes, ByteCount slab,
                             ByteCount begin = 100) {
  const PackPlan plan = pack(sizes, slab);
  std::vector<CopyItem> items;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    items.push_back({0, begin, sizes[i], plan.placements[i]});
    begin += sizes[i];
  }
  return items;
}

// The runs copy exactly the bytes of the items, and each run is valid.
void expect_exact(const std::vector<CopyItem>& items, ByteCount chunk) {
  struct Byte {
    std::size_t file;
    ByteCount from;
    std::size_t allocation;
    ByteCount to;
    bool operator==(const Byte&) const = default;
  };
  std::vector<Byte> wanted;
  for (const CopyItem& item : items) {
    for (ByteCount i = 0; i < item.size; ++i) {
      wanted.push_back({item.file, item.offset + i, item.to.allocation, item.to.offset + i});
    }
  }
  std::vector<Byte> found;
  for (const CopyRun& run : plan_runs(items, chunk)) {
    ASSERT_FALSE(run.pieces.empty());
    EXPECT_LE(run.pieces.size(), kMaxPieces);
    EXPECT_LE(run.span(), chunk);
    EXPECT_LE(run.size(), run.span());
    ByteCount from = run.offset;
    ByteCount end = 0;
    for (const CopyRun::Piece& piece : run.pieces) {
      EXPECT_GT(piece.size, 0u);
      EXPECT_GE(piece.at, end);
      end = piece.at + piece.size;
      for (ByteCount i = 0; i < piece.size; ++i) {
        found.push_back({run.file, from++, run.to.allocation, run.to.offset + piece.at + i});
      }
    }
  }
  EXPECT_TRUE(found == wanted);
}

TEST(CopyPlan, SplitsLargeItems) {
  const auto runs = plan_runs(packed({2500}, 4096), 1000);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[1].offset, 1100u);
  EXPECT_EQ(runs[1].to.offset, 1000u);
  EXPECT_EQ(runs[2].size(), 500u);
}

TEST(CopyPlan, RunsBeginWhereDirectReadsMay) {
  const auto runs = plan_runs(packed({5 * kDirectAlignment}, 1u << 20), 2 * kDirectAlignment);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].size(), 2 * kDirectAlignment - 100);
  EXPECT_EQ(runs[1].offset, 2 * kDirectAlignment);
  EXPECT_EQ(runs[1].size(), 2 * kDirectAlignment);
  EXPECT_EQ(runs[2].size(), kDirectAlignment + 100);
}

TEST(CopyPlan, JoinsSmallItemsThatAlignmentSeparates) {
  const auto runs = plan_runs(packed({100, 300, 256, 1}, 1u << 20), 1u << 20);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].size(), 657u);
  EXPECT_EQ(runs[0].span(), 1025u);
  EXPECT_EQ(runs[0].pieces.size(), 4u);
}

TEST(CopyPlan, ManySmallItemsAreFewRuns) {
  EXPECT_EQ(plan_runs(packed(std::vector<ByteCount>(20'000, 2048), 1u << 30), 8u << 20).size(),
            20u);
}

TEST(CopyPlan, JoinsAcrossItemsOfNoBytes) {
  EXPECT_EQ(plan_runs(packed({100, 0, 100}, 1u << 20), 1u << 20).size(), 1u);
  EXPECT_TRUE(plan_runs(packed({0, 0}, 1u << 20), 1u << 20).empty());
}

TEST(CopyPlan, NeverJoinsOverAFileAnAllocationOrAGap) {
  const CopyItem first{0, 0, 256, {0, 0}};
  for (const CopyItem& next : {CopyItem{1, 256, 256, {0, 256}}, CopyItem{0, 257, 256, {0, 256}},
                               CopyItem{0, 255, 256, {0, 256}}, CopyItem{0, 256, 256, {1, 256}},
                               CopyItem{0, 256, 256, {0, 4096}}, CopyItem{0, 256, 256, {0, 255}},
                               CopyItem{0, 256, 256, {0, 0}}}) {
    EXPECT_EQ(plan_runs(std::vector{first, next}, 1u << 20).size(), 2u);
  }
}

TEST(CopyPlan, CopiesEveryByteOnceToItsPlace) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<ByteCount> sizes(1 + random() % 30);
    for (ByteCount& size : sizes) size = random() % (random() % 4 == 0 ? 5000 : 300);
    const ByteCount slab = 1 + random() % 6000;
    for (const ByteCount chunk : {1u, 256u, 1000u, 4096u}) {
      expect_exact(packed(sizes, slab), chunk);
    }
  }
  expect_exact(packed(std::vector<ByteCount>(3000, 3), 1u << 20), 1u << 20);
}

}  // namespace
}  // namespace fo::weights
