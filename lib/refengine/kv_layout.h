// Where keys and values lie in a rank's KV cache, and how many positions its bytes hold. Arithmetic
// only: the memory is somebody else's.
#pragma once

#include <cstdint>

#include "base/strong.h"
#include "refengine/model_config.h"

namespace fo::refengine {

/// Layers [first, last) of a model.
struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  [[nodiscard]] std::uint32_t count() const { return last - first; }
};

/// The layers of `rank` out of `ranks`: as even as can be, the earlier ranks taking what is over.
/// Every rank has one at least if ranks <= layers.
LayerRange layers_of_rank(std::uint32_t layers, std::uint32_t rank, std::uint32_t ranks);

/// f32, [layer][key, value][kv head][position][head_dim].
class KvLayout {
 public:
  /// As many positions as `bytes` hold, at most the model's.
  KvLayout(const ModelConfig& config, LayerRange layers, base::ByteCount bytes);

  [[nodiscard]] std::uint32_t positions() const { return positions_; }
  /// Offsets in floats; `layer` counts from the rank's first. Consecutive positions are head_dim
  /// apart.
  [[nodiscard]] std::size_t key(std::uint32_t layer, std::uint32_t head,
                                std::size_t position) const;
  [[nodiscard]] std::size_t value(std::uint32_t layer, std::uint32_t head,
                                  std::size_t position) const;
  /// What positions() of them take.
  [[nodiscard]] base::ByteCount used_bytes() const;
  /// One position over all the rank's layers.
  static base::ByteCount bytes_per_position(const ModelConfig& config, LayerRange layers);

 private:
  [[nodiscard]] std::size_t at(std::size_t plane, std::uint32_t head, std::size_t position) const;

  std::uint32_t layers_;
  std::uint32_t kv_heads_;
  std::uint32_t head_dim_;
  std::uint32_t positions_;
};

}  // namespace fo::refengine
