#include "refengine/model/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace fo::refengine {
namespace {

using base::Error;
using base::ExitStatus;

constexpr std::size_t kLanes = 16;

// Sixteen partial sums in a fixed order allow vectorisation without reordering, so that all builds
// of an architecture give equal results.
float dot(const float* a, const float* b, std::size_t size) {
  float sums[kLanes] = {};
  std::size_t at = 0;
  for (; at + kLanes <= size; at += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[at + lane] * b[at + lane];
  }
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  for (; at < size; ++at) sums[0] += a[at] * b[at];
  return sums[0];
}

void widen(DType dtype, const std::uint16_t* __restrict from, std::size_t size,
           float* __restrict to) {
  if (dtype == DType::kF16) {
    for (std::size_t i = 0; i < size; ++i) to[i] = f16_to_f32(from[i]);
  } else {
    for (std::size_t i = 0; i < size; ++i) to[i] = bf16_to_f32(from[i]);
  }
}

void add(std::span<float> to, std::span<const float> what) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += what[i];
}

std::span<float> sized(std::vector<float>& scratch, std::size_t size) {
  if (scratch.size() < size) scratch.resize(size);
  return {scratch.data(), size};
}

void softmax(std::span<float> scores) {
  const float most = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& score : scores) {
    score = std::exp(score - most);
    sum += score;
  }
  for (float& score : scores) score /= sum;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, LayerRange layers, const WeightView& weights)
    : config_(config) {
  std::map<std::string, Matrix, std::less<>> found;
  const auto belongs = [&](const std::string& name) {
    constexpr std::string_view kPrefix = "model.layers.";
    if (name.starts_with(kPrefix)) {
      const auto layer = static_cast<std::uint32_t>(std::stoul(name.substr(kPrefix.size())));
      return layer >= layers.first && layer < layers.last;
    }
    const bool last = layers.last == config.layers;
    if (name == "model.embed_tokens.weight") {
      return layers.first == 0 || (last && config.tie_word_embeddings);
    }
    return last;
  };
  for (const TensorSpec& spec : model_tensors(config)) {
    if (!belongs(spec.name)) continue;
    const auto at = weights.find(spec.name);
    if (at == weights.end()) {
      throw Error(ExitStatus::kBadData, "bind tensor " + base::quoted(spec.name) + ": missing");
    }
    const TensorView& tensor = at->second;
    if (tensor.shape != spec.shape) {
      throw Error(ExitStatus::kBadData, "bind tensor " + base::quoted(spec.name) + ": shape " +
                                            shape_text(tensor.shape) + ", expected " +
                                            shape_text(spec.shape));
    }
    const bool vector = spec.shape.size() == 1;
    found[spec.name] = {tensor.dtype, vector ? 1 : spec.shape[0],
                        vector ? spec.shape[0] : spec.shape[1], tensor.data};
  }
  for (std::uint32_t index = layers.first; index < layers.last; ++index) {
    const std::string prefix = "model.layers." + std::to_string(index) + ".";
    const auto take = [&](const char* name) { return found.at(prefix + name); };
    layers_.push_back({take("input_layernorm.weight"), take("self_attn.q_proj.weight"),
                       take("self_attn.k_proj.weight"), take("self_attn.v_proj.weight"),
                       take("self_attn.o_proj.weight"), take("post_attention_layernorm.weight"),
                       take("mlp.gate_proj.weight"), take("mlp.up_proj.weight"),
                       take("mlp.down_proj.weight")});
  }
  embedding_ = found["model.embed_tokens.weight"];
  final_norm_ = found["model.norm.weight"];
  head_ = config.tie_word_embeddings ? embedding_ : found["lm_head.weight"];
  for (std::uint32_t i = 0; i < config.head_dim / 2; ++i) {
    frequencies_.push_back(std::pow(config.rope_theta, -2.0 * i / config.head_dim));
  }
}

// A row as f32, without a copy if possible; valid until the next call.
const float* Transformer::row(const Matrix& weight, std::size_t index) {
  const std::byte* data = weight.data + index * weight.columns * dtype_size(weight.dtype);
  if (weight.dtype == DType::kF32) return reinterpret_cast<const float*>(data);
  const auto* halves = reinterpret_cast<const std::uint16_t*>(data);
  float* out = sized(row_, weight.columns).data();
  widen(weight.dtype, halves, weight.columns, out);
  return out;
}

// out[t] = weight · in[t] for every token t; each row of weights is read once.
void Transformer::multiply(const Matrix& weight, std::span<const float> in, std::span<float> out) {
  const std::size_t count = in.size() / weight.columns;
  for (std::size_t r = 0; r < weight.rows; ++r) {
    const float* values = row(weight, r);
    for (std::size_t t = 0; t < count; ++t) {
      out[t * weight.rows + r] = dot(values, in.data() + t * weight.columns, weight.columns);
    }
  }
}

void Transformer::norm(const Matrix& weight, std::span<const float> in, std::span<float> out) {
  const float* scale = row(weight, 0);
  const std::size_t size = weight.columns;
  for (std::size_t at = 0; at < in.size(); at += size) {
    const float mean_square = dot(&in[at], &in[at], size) / static_cast<float>(size);
    const float factor = 1.0f / std::sqrt(mean_square + static_cast<float>(config_.rms_norm_eps));
    for (std::size_t i = 0; i < size; ++i) out[at + i] = in[at + i] * factor * scale[i];
  }
}

void Transformer::embed(std::span<const TokenId> tokens, std::span<float> hidden) const {
  const std::size_t size = config_.hidden_size;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::byte* data = embedding_.data + tokens[t] * size * dtype_size(embedding_.dtype);
    float* out = &hidden[t * size];
    if (embedding_.dtype == DType::kF32) {
      std::memcpy(out, data, size * sizeof(float));
      continue;
    }
    const auto* halves = reinterpret_cast<const std::uint16_t*>(data);
    widen(embedding_.dtype, halves, size, out);
  }
}

// Rotates the queries and keys of every token, stores keys and values, and writes the attention
// result to mixed_. Element i is rotated with element i + head_dim/2, as in Hugging Face.
void Transformer::attend(std::size_t count, std::size_t position, std::uint32_t layer,
                         const KvLayout& layout, float* kv) {
  const std::size_t dim = config_.head_dim;
  const std::size_t half = dim / 2;
  const auto rotate = [&](float* vector, std::size_t token) {
    const float* cosines = &cosines_[token * half];
    const float* sines = &sines_[token * half];
    for (std::size_t i = 0; i < half; ++i) {
      const float low = vector[i];
      const float high = vector[i + half];
      vector[i] = low * cosines[i] - high * sines[i];
      vector[i + half] = high * cosines[i] + low * sines[i];
    }
  };
  for (std::size_t t = 0; t < count; ++t) {
    for (std::uint32_t head = 0; head < config_.heads; ++head) {
      rotate(&queries_[(t * config_.heads + head) * dim], t);
    }
    for (std::uint32_t head = 0; head < config_.kv_heads; ++head) {
      const std::size_t from = (t * config_.kv_heads + head) * dim;
      rotate(&keys_[from], t);
      std::copy_n(&keys_[from], dim, kv + layout.key(layer, head, position + t));
      std::copy_n(&values_[from], dim, kv + layout.value(layer, head, position + t));
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): check_model_config refuses 0
  const std::uint32_t group = config_.heads / config_.kv_heads;
  for (std::size_t t = 0; t < count; ++t) {
    const std::span<float> scores = sized(scores_, position + t + 1);
    for (std::uint32_t head = 0; head < config_.heads; ++head) {
      const float* query = &queries_[(t * config_.heads + head) * dim];
      const float* keys = kv + layout.key(layer, head / group, 0);
      const float* values = kv + layout.value(layer, head / group, 0);
      for (std::size_t p = 0; p < scores.size(); ++p) {
        scores[p] = dot(query, keys + p * dim, dim) * scale;
      }
      softmax(scores);
      float* out = &mixed_[(t * config_.heads + head) * dim];
      std::fill_n(out, dim, 0.0f);
      for (std::size_t p = 0; p < scores.size(); ++p) {
        for (std::size_t i = 0; i < dim; ++i) out[i] += scores[p] * values[p * dim + i];
      }
    }
  }
}

void Transformer::forward(std::span<float> hidden, std::size_t position, const KvLayout& layout,
                          float* kv) {
  const std::size_t count = hidden.size() / config_.hidden_size;
  const std::size_t half = config_.head_dim / 2;
  sized(cosines_, count * half);
  sized(sines_, count * half);
  for (std::size_t t = 0; t < count; ++t) {
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position + t) * frequencies_[i];
      cosines_[t * half + i] = static_cast<float>(std::cos(angle));
      sines_[t * half + i] = static_cast<float>(std::sin(angle));
    }
  }
  const std::span<float> normed = sized(normed_, hidden.size());
  const std::span<float> projected = sized(projected_, hidden.size());
  const std::span<float> queries = sized(queries_, count * config_.heads * config_.head_dim);
  const std::span<float> mixed = sized(mixed_, queries.size());
  const std::span<float> keys = sized(keys_, count * config_.kv_heads * config_.head_dim);
  const std::span<float> values = sized(values_, keys.size());
  const std::span<float> gate = sized(gate_, count * config_.intermediate_size);
  const std::span<float> up = sized(up_, gate.size());
  for (std::uint32_t index = 0; index < layers_.size(); ++index) {
    const Layer& layer = layers_[index];
    norm(layer.input_norm, hidden, normed);
    multiply(layer.q, normed, queries);
    multiply(layer.k, normed, keys);
    multiply(layer.v, normed, values);
    attend(count, position, index, layout, kv);
    multiply(layer.o, mixed, projected);
    add(hidden, projected);
    norm(layer.post_norm, hidden, normed);
    multiply(layer.gate, normed, gate);
    multiply(layer.up, normed, up);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
    }
    multiply(layer.down, gate, projected);
    add(hidden, projected);
  }
}

void Transformer::logits(std::span<const float> hidden, std::span<float> logits) {
  const std::span<float> normed = sized(normed_, hidden.size());
  norm(final_norm_, hidden, normed);
  multiply(head_, normed, logits);
}

}  // namespace fo::refengine
