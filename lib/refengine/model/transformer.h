// The forward pass of a Llama decoder with weights in host-readable memory. Single-threaded; the
// same input gives the same bits on every run, however the tokens are split into chunks and the
// layers into ranks.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "refengine/kv/kv_layout.h"
#include "refengine/model/model_config.h"

namespace fo::refengine {

/// A dense row-major tensor. Borrowed: `data` must outlive its users and be aligned to its element.
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  const std::byte* data = nullptr;
};

/// Tensors by their Hugging Face names.
using WeightView = std::map<std::string, TensorView, std::less<>>;

class Transformer {
 public:
  /// Binds the tensors of `layers`. The first layer of the model includes the embedding, the last
  /// one the final norm and the head. Other tensors are not used. Throws Error(kBadData) for a
  /// tensor that is missing or has a wrong shape.
  Transformer(const ModelConfig& config, LayerRange layers, const WeightView& weights);

  /// Rows of the embedding: tokens.size() × hidden_size. Tokens must be inside the vocabulary.
  void embed(std::span<const TokenId> tokens, std::span<float> hidden) const;

  /// Runs the layers for hidden.size() / hidden_size tokens at `position`, `position`+1 …, in
  /// place; reads the earlier positions from `kv` and writes these. All positions must be below
  /// layout.positions().
  void forward(std::span<float> hidden, std::size_t position, const KvLayout& layout, float* kv);

  /// The vocab_size logits for one token's hidden state.
  void logits(std::span<const float> hidden, std::span<float> logits);

 private:
  struct Matrix {
    DType dtype = DType::kF32;
    std::size_t rows = 0;
    std::size_t columns = 0;
    const std::byte* data = nullptr;
  };
  struct Layer {
    Matrix input_norm, q, k, v, o, post_norm, gate, up, down;
  };

  void attend(std::size_t count, std::size_t position, std::uint32_t layer, const KvLayout& layout,
              float* kv);
  void norm(const Matrix& weight, std::span<const float> in, std::span<float> out);
  void multiply(const Matrix& weight, std::span<const float> in, std::span<float> out);
  const float* row(const Matrix& weight, std::size_t index);

  ModelConfig config_;
  Matrix embedding_, final_norm_, head_;
  std::vector<Layer> layers_;
  std::vector<double> frequencies_;
  // Buffers with the size of the largest chunk so far.
  std::vector<float> row_, normed_, queries_, keys_, values_, mixed_, projected_, gate_, up_;
  std::vector<float> scores_, cosines_, sines_;
};

}  // namespace fo::refengine
