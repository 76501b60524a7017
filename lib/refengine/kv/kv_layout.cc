#include "refengine/kv/kv_layout.h"

#include <algorithm>

namespace fo::refengine {

LayerRange layers_of_rank(std::uint32_t layers, std::uint32_t rank, std::uint32_t ranks) {
  const std::uint32_t share = layers / ranks;
  const std::uint32_t over = layers % ranks;
  const std::uint32_t first = rank * share + std::min(rank, over);
  return {first, first + share + (rank < over ? 1 : 0)};
}

base::ByteCount KvLayout::bytes_per_position(const ModelConfig& config, LayerRange layers) {
  return base::ByteCount{layers.count()} * 2 * config.kv_heads * config.head_dim * sizeof(float);
}

KvLayout::KvLayout(const ModelConfig& config, LayerRange layers, base::ByteCount bytes)
    : layers_(layers.count()),
      kv_heads_(config.kv_heads),
      head_dim_(config.head_dim),
      positions_(static_cast<std::uint32_t>(std::min<base::ByteCount>(
          bytes / std::max<base::ByteCount>(bytes_per_position(config, layers), 1),
          config.max_positions))) {}

std::size_t KvLayout::at(std::size_t plane, std::uint32_t head, std::size_t position) const {
  return ((plane * kv_heads_ + head) * positions_ + position) * head_dim_;
}

std::size_t KvLayout::key(std::uint32_t layer, std::uint32_t head, std::size_t position) const {
  return at(std::size_t{layer} * 2, head, position);
}

std::size_t KvLayout::value(std::uint32_t layer, std::uint32_t head, std::size_t position) const {
  return at(std::size_t{layer} * 2 + 1, head, position);
}

std::vector<std::size_t> KvLayout::rows(std::size_t position) const {
  std::vector<std::size_t> rows;
  for (std::size_t plane = 0; plane < std::size_t{layers_} * 2; ++plane) {
    for (std::uint32_t head = 0; head < kv_heads_; ++head)
      rows.push_back(at(plane, head, position));
  }
  return rows;
}

base::ByteCount KvLayout::used_bytes() const {
  return base::ByteCount{layers_} * 2 * kv_heads_ * head_dim_ * positions_ * sizeof(float);
}

}  // namespace fo::refengine
