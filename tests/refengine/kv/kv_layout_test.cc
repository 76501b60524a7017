#include "refengine/kv/kv_layout.h"

#include <gtest/gtest.h>

#include <set>

namespace fo::refengine {
namespace {

ModelConfig config_of(std::uint32_t kv_heads, std::uint32_t head_dim) {
  ModelConfig config;
  config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.max_positions = 1000;
  return config;
}

TEST(KvLayout, LayersAreSplitEvenlyAndWithoutGaps) {
  for (std::uint32_t layers = 1; layers < 20; ++layers) {
    for (std::uint32_t ranks = 1; ranks <= layers; ++ranks) {
      std::uint32_t next = 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const LayerRange range = layers_of_rank(layers, rank, ranks);
        EXPECT_EQ(range.first, next);
        EXPECT_GE(range.count(), layers / ranks);
        EXPECT_LE(range.count(), layers / ranks + 1);
        next = range.last;
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(KvLayout, BytesDecideThePositions) {
  const ModelConfig config = config_of(2, 4);
  const LayerRange layers{3, 6};
  const base::ByteCount each = 3 * 2 * 2 * 4 * 4;
  EXPECT_EQ(KvLayout::bytes_per_position(config, layers), each);
  EXPECT_EQ(KvLayout(config, layers, each - 1).positions(), 0u);
  EXPECT_EQ(KvLayout(config, layers, each).positions(), 1u);
  EXPECT_EQ(KvLayout(config, layers, each * 8 - 1).positions(), 7u);
  EXPECT_EQ(KvLayout(config, layers, each * 8).used_bytes(), each * 8);
}

TEST(KvLayout, NeverHoldsMoreThanTheModelKnows) {
  EXPECT_EQ(KvLayout(config_of(2, 4), {0, 1}, base::kGiB * 1024).positions(), 1000u);
}

TEST(KvLayout, EveryElementHasAPlaceOfItsOwnInside) {
  const ModelConfig config = config_of(2, 4);
  const KvLayout layout(config, {0, 3}, KvLayout::bytes_per_position(config, {0, 3}) * 5);
  std::set<std::size_t> places;
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    for (std::uint32_t head = 0; head < 2; ++head) {
      for (std::size_t position = 0; position < 5; ++position) {
        for (std::size_t i = 0; i < 4; ++i) {
          places.insert(layout.key(layer, head, position) + i);
          places.insert(layout.value(layer, head, position) + i);
        }
      }
    }
  }
  EXPECT_EQ(places.size() * sizeof(float), layout.used_bytes());
  EXPECT_EQ(*places.rbegin(), places.size() - 1);
}

}  // namespace
}  // namespace fo::refengine
