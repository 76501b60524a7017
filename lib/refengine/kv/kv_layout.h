// Positions of keys and values in a rank's KV cache, and its capacity. Arithmetic only: it owns no
// memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/strong.h"
#include "refengine/model/model_config.h"

namespace fo::refengine {

/// Layers [first, last) of a model.
struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  [[nodiscard]] std::uint32_t count() const { return last - first; }
};

/// The layers of `rank` out of `ranks`, distributed evenly; the first ranks take the remainder.
/// Every rank has at least one if ranks <= layers.
LayerRange layers_of_rank(std::uint32_t layers, std::uint32_t rank, std::uint32_t ranks);

/// The elements are f32, with the dimensions [layer][key, value][kv head][position][head_dim].
class KvLayout {
 public:
  /// Creates a layout with as many positions as fit into `bytes`, at most the model's maximum.
  KvLayout(const ModelConfig& config, LayerRange layers, base::ByteCount bytes);

  [[nodiscard]] std::uint32_t positions() const { return positions_; }
  /// Offsets in floats; `layer` counts from the rank's first. Consecutive positions are head_dim
  /// floats apart.
  [[nodiscard]] std::size_t key(std::uint32_t layer, std::uint32_t head,
                                std::size_t position) const;
  [[nodiscard]] std::size_t value(std::uint32_t layer, std::uint32_t head,
                                  std::size_t position) const;
  /// The offsets of a position: for each layer the keys of all heads, then the values.
  [[nodiscard]] std::vector<std::size_t> rows(std::size_t position) const;
  [[nodiscard]] std::size_t head_dim() const { return head_dim_; }
  /// The size of all positions().
  [[nodiscard]] base::ByteCount used_bytes() const;
  /// The size of one position in all layers of the rank.
  static base::ByteCount bytes_per_position(const ModelConfig& config, LayerRange layers);

 private:
  [[nodiscard]] std::size_t at(std::size_t plane, std::uint32_t head, std::size_t position) const;

  std::uint32_t layers_;
  std::uint32_t kv_heads_;
  std::uint32_t head_dim_;
  std::uint32_t positions_;
};

}  // namespace fo::refengine
