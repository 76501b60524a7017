// A model's shape, as config.json in a Hugging Face folder states it. Only what this engine can
// run: a config that asks for anything else is refused, never approximated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "refengine/dtype.h"

namespace fo::refengine {

using TokenId = std::uint32_t;

struct ModelConfig {
  std::uint32_t hidden_size = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t layers = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  /// What the folder says; each tensor's own type is what counts.
  DType dtype = DType::kF32;
  std::optional<TokenId> bos;
  /// Any of these ends a completion.
  std::vector<TokenId> eos;
};

/// The longest config.json that is read.
inline constexpr std::uint64_t kMaxConfigBytes = 1 << 20;

/// Reads Hugging Face names. `name` is for messages. Throws Error(kBadData) for what is not JSON,
/// a missing or out-of-range number, heads that don't divide, and features this engine has not
/// (rope scaling, biases, activations but silu).
ModelConfig parse_model_config(std::string_view json, const std::string& name);

/// parse_model_config of `dir`/config.json. Throws Error(kNoInput) too.
ModelConfig read_model_config(const std::string& dir);

/// The inverse: a config.json that other loaders of Llama models read too.
std::string format_model_config(const ModelConfig& config);

/// Throws Error(kBadData) with "model config 'name': reason" when the numbers can't be a model.
void check_model_config(const ModelConfig& config, const std::string& name);

/// A tensor of the model: its name and shape (a vector has one extent).
struct TensorSpec {
  std::string name;
  std::vector<std::uint64_t> shape;
};

/// Every tensor of the model under its Hugging Face name, embedding first, head last (left out when
/// tied).
std::vector<TensorSpec> model_tensors(const ModelConfig& config);

}  // namespace fo::refengine
