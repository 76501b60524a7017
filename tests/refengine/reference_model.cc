#include "refengine/reference_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>

#include "weights/file/model.h"

namespace fo::test {
namespace {

using refengine::TokenId;

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;

// IEEE 754 binary16 and bfloat16 by their definition: sign, exponent, fraction.
double decode_half(std::uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

Rows read_tensor(const LoadedModel& model, const std::string& name) {
  const refengine::TensorView& view = model.weights.at(name);
  const std::size_t columns = view.shape.back();
  const std::size_t rows = view.shape.size() == 1 ? 1 : view.shape.front();
  Rows values(rows, Vector(columns));
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t element = r * columns + c;
      if (view.dtype == refengine::DType::kF32) {
        float value = 0;
        std::memcpy(&value, view.data + element * 4, 4);
        values[r][c] = value;
      } else {
        std::uint16_t bits = 0;
        std::memcpy(&bits, view.data + element * 2, 2);
        values[r][c] = decode_half(bits, view.dtype == refengine::DType::kF16 ? 5 : 8);
      }
    }
  }
  return values;
}

Vector product(const Rows& matrix, const Vector& in) {
  Vector out;
  for (const Vector& row : matrix) {
    double sum = 0;
    for (std::size_t i = 0; i < in.size(); ++i) sum += row[i] * in[i];
    out.push_back(sum);
  }
  return out;
}

Vector rms_norm(const Vector& in, const Vector& weight, double eps) {
  double squares = 0;
  for (const double value : in) squares += value * value;
  Vector out;
  for (std::size_t i = 0; i < in.size(); ++i) {
    out.push_back(weight[i] * in[i] / std::sqrt(squares / static_cast<double>(in.size()) + eps));
  }
  return out;
}

// RoPE as a rotation of complex numbers: elements i and i + d/2 form one number, which is rotated
// by position · theta^(-2i/d).
Vector rotated(const Vector& head, std::size_t position, double theta) {
  const std::size_t half = head.size() / 2;
  Vector out(head.size());
  for (std::size_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head.size()));
    const std::complex<double> turned = std::complex<double>(head[i], head[i + half]) *
                                        std::polar(1.0, static_cast<double>(position) * frequency);
    out[i] = turned.real();
    out[i + half] = turned.imag();
  }
  return out;
}

Vector slice(const Vector& all, std::size_t index, std::size_t size) {
  const auto from = all.begin() + static_cast<std::ptrdiff_t>(index * size);
  return {from, from + static_cast<std::ptrdiff_t>(size)};
}

Vector attend(const Vector& query, const Rows& keys, const Rows& values) {
  Vector scores;
  double total = 0;
  for (const Vector& key : keys) {
    double score = 0;
    for (std::size_t i = 0; i < key.size(); ++i) score += query[i] * key[i];
    scores.push_back(std::exp(score / std::sqrt(static_cast<double>(key.size()))));
    total += scores.back();
  }
  Vector out(query.size(), 0.0);
  for (std::size_t p = 0; p < values.size(); ++p) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += scores[p] / total * values[p][i];
  }
  return out;
}

}  // namespace

LoadedModel load_model(const std::string& dir) {
  LoadedModel model;
  model.config = refengine::read_model_config(dir);
  const weights::Model opened = weights::open_model(dir);
  for (const auto& [tensor, file] : opened.tensors) {
    EXPECT_EQ(tensor.offset % 8, 0u) << tensor.name << " must be aligned";
    std::vector<std::byte>& bytes = model.bytes[tensor.name];
    bytes.resize(tensor.size);
    opened.files[file].read(bytes, tensor.offset);
    model.weights[tensor.name] = {.dtype = *refengine::parse_torch_dtype(tensor.dtype->torch_name),
                                  .shape = tensor.shape,
                                  .data = bytes.data()};
  }
  return model;
}

std::vector<double> reference_logits(const LoadedModel& model, const std::vector<TokenId>& tokens) {
  const refengine::ModelConfig& config = model.config;
  const Rows embedding = read_tensor(model, "model.embed_tokens.weight");
  Rows states;
  for (const TokenId token : tokens) states.push_back(embedding[token]);
  for (std::uint32_t layer = 0; layer < config.layers; ++layer) {
    const auto tensor = [&](const std::string& name) {
      return read_tensor(model, "model.layers." + std::to_string(layer) + "." + name + ".weight");
    };
    const Vector input_norm = tensor("input_layernorm").front();
    const Vector post_norm = tensor("post_attention_layernorm").front();
    const Rows q = tensor("self_attn.q_proj");
    const Rows k = tensor("self_attn.k_proj");
    const Rows v = tensor("self_attn.v_proj");
    const Rows o = tensor("self_attn.o_proj");
    const Rows gate = tensor("mlp.gate_proj");
    const Rows up = tensor("mlp.up_proj");
    const Rows down = tensor("mlp.down_proj");
    std::vector<Rows> keys(config.kv_heads);
    std::vector<Rows> values(config.kv_heads);
    for (std::size_t position = 0; position < states.size(); ++position) {
      Vector& state = states[position];
      const Vector normed = rms_norm(state, input_norm, config.rms_norm_eps);
      const Vector query = product(q, normed);
      const Vector key = product(k, normed);
      const Vector value = product(v, normed);
      for (std::size_t head = 0; head < config.kv_heads; ++head) {
        keys[head].push_back(
            rotated(slice(key, head, config.head_dim), position, config.rope_theta));
        values[head].push_back(slice(value, head, config.head_dim));
      }
      Vector mixed;
      for (std::size_t head = 0; head < config.heads; ++head) {
        const std::size_t shared = head * config.kv_heads / config.heads;
        const Vector out =
            attend(rotated(slice(query, head, config.head_dim), position, config.rope_theta),
                   keys[shared], values[shared]);
        mixed.insert(mixed.end(), out.begin(), out.end());
      }
      const Vector attended = product(o, mixed);
      for (std::size_t i = 0; i < state.size(); ++i) state[i] += attended[i];
      const Vector post = rms_norm(state, post_norm, config.rms_norm_eps);
      Vector inner = product(gate, post);
      const Vector raised = product(up, post);
      for (std::size_t i = 0; i < inner.size(); ++i) {
        inner[i] = inner[i] * (1.0 / (1.0 + std::exp(-inner[i]))) * raised[i];
      }
      const Vector lowered = product(down, inner);
      for (std::size_t i = 0; i < state.size(); ++i) state[i] += lowered[i];
    }
  }
  const Vector last =
      rms_norm(states.back(), read_tensor(model, "model.norm.weight").front(), config.rms_norm_eps);
  return product(config.tie_word_embeddings ? embedding : read_tensor(model, "lm_head.weight"),
                 last);
}

std::vector<TokenId> reference_tokens(const LoadedModel& model, std::vector<TokenId> tokens,
                                      std::size_t count) {
  std::vector<TokenId> output;
  for (std::size_t i = 0; i < count; ++i) {
    const Vector logits = reference_logits(model, tokens);
    const auto best = std::max_element(logits.begin(), logits.end());
    tokens.push_back(static_cast<TokenId>(best - logits.begin()));
    output.push_back(tokens.back());
  }
  return output;
}

}  // namespace fo::test
