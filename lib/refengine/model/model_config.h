// A model's shape from the config.json of a Hugging Face folder. A config with features that this
// engine does not support is refused, never approximated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "refengine/model/dtype.h"

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
  /// The type in config.json; each tensor has its own type.
  DType dtype = DType::kF32;
  std::optional<TokenId> bos;
  /// Any of these ends a completion.
  std::vector<TokenId> eos;
};

/// Maximum size of config.json.
inline constexpr std::uint64_t kMaxConfigBytes = 1 << 20;

/// Reads Hugging Face names. `name` is for messages. Throws Error(kBadData) for invalid JSON, a
/// missing or out-of-range number, heads that do not divide, and unsupported features (rope
/// scaling, biases, activations other than silu).
ModelConfig parse_model_config(std::string_view json, const std::string& name);

/// parse_model_config of `dir`/config.json. Also throws Error(kNoInput).
ModelConfig read_model_config(const std::string& dir);

/// The inverse: a config.json that other loaders of Llama models accept.
std::string format_model_config(const ModelConfig& config);

/// Throws Error(kBadData) with "model config 'name': reason" if the numbers are inconsistent.
void check_model_config(const ModelConfig& config, const std::string& name);

/// A tensor of the model: its name and shape (a vector has one dimension).
struct TensorSpec {
  std::string name;
  std::vector<std::uint64_t> shape;
};

/// Every tensor of the model under its Hugging Face name, embedding first, head last (omitted if
/// tied).
std::vector<TensorSpec> model_tensors(const ModelConfig& config);

}  // namespace fo::refengine
