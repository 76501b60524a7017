#include "refengine/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "json/object.h"
#include "os/file/file.h"

namespace fo::refengine {
namespace {

using base::Error;
using base::ExitStatus;
using nlohmann::json;

constexpr std::uint32_t kMaxHidden = 1 << 16;
constexpr std::uint32_t kMaxIntermediate = 1 << 18;
constexpr std::uint32_t kMaxLayers = 1024;
constexpr std::uint32_t kMaxHeads = 1024;
constexpr std::uint32_t kMaxHeadDim = 1024;
constexpr std::uint32_t kMaxVocab = 1 << 20;
constexpr std::uint32_t kMaxPositions = 1 << 24;
constexpr std::size_t kMaxEos = 16;

[[noreturn]] void refuse_config(const std::string& name, const std::string& reason) {
  throw Error(ExitStatus::kBadData, "model config " + base::quoted(name) + ": " + reason);
}

json parse_config(std::string_view text, const std::string& name) {
  try {
    return fo::json::parse_object(text, kMaxConfigBytes);
  } catch (const fo::json::TooDeep&) {
    refuse_config(name, "nested too deeply");
  } catch (const fo::json::Misfit&) {
    refuse_config(name, "not a JSON object");
  }
}

// Reads the keys of a config.json.
class Reader {
 public:
  Reader(const json& object, const std::string& name) : object_(object), name_(name) {}

  [[nodiscard]] const json* find(const char* key) const { return fo::json::find(object_, key); }

  [[nodiscard]] std::uint32_t count(const char* key, std::optional<std::uint32_t> fallback,
                                    std::uint32_t most) const {
    const json* value = find(key);
    if (value == nullptr && fallback) return *fallback;
    if (value == nullptr) refuse_config(name_, std::string(key) + " is missing");
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() == 0 ||
        value->get<std::uint64_t>() > most) {
      refuse_config(name_, std::string(key) + " is not a number from 1 to " + std::to_string(most));
    }
    return value->get<std::uint32_t>();
  }

  [[nodiscard]] double number(const char* key, double fallback) const {
    const json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) refuse_config(name_, std::string(key) + " is not a number");
    return value->get<double>();
  }

  [[nodiscard]] bool flag(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) refuse_config(name_, std::string(key) + " is not true or false");
    return value->get<bool>();
  }

  [[nodiscard]] std::string text(const char* key, const std::string& fallback) const {
    const json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) refuse_config(name_, std::string(key) + " is not a string");
    return value->get<std::string>();
  }

  /// One id or a list of them.
  [[nodiscard]] std::vector<TokenId> tokens(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return {};
    const json list = value->is_array() ? *value : json::array({*value});
    std::vector<TokenId> ids;
    for (const json& id : list) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kMaxVocab ||
          ids.size() == kMaxEos) {
        refuse_config(name_, std::string(key) + " is not a token id or a list of them");
      }
      ids.push_back(id.get<TokenId>());
    }
    return ids;
  }

 private:
  const json& object_;
  const std::string& name_;
};

void refuse_unsupported(const Reader& reader, const std::string& name) {
  if (reader.text("hidden_act", "silu") != "silu") refuse_config(name, "hidden_act is not silu");
  if (reader.flag("attention_bias")) refuse_config(name, "attention_bias is not supported");
  if (reader.flag("mlp_bias")) refuse_config(name, "mlp_bias is not supported");
  if (reader.text("model_type", "llama") != "llama") refuse_config(name, "model_type is not llama");
  for (const char* key :
       {"rope_scaling", "rope_parameters", "sliding_window", "quantization_config"}) {
    if (reader.find(key) != nullptr) refuse_config(name, std::string(key) + " is not supported");
  }
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, const std::string& name) {
  const json object = parse_config(text, name);
  const Reader reader(object, name);
  refuse_unsupported(reader, name);
  ModelConfig config;
  config.hidden_size = reader.count("hidden_size", std::nullopt, kMaxHidden);
  config.intermediate_size = reader.count("intermediate_size", std::nullopt, kMaxIntermediate);
  config.layers = reader.count("num_hidden_layers", std::nullopt, kMaxLayers);
  config.heads = reader.count("num_attention_heads", std::nullopt, kMaxHeads);
  config.kv_heads = reader.count("num_key_value_heads", config.heads, kMaxHeads);
  const std::uint32_t even_share = std::max(config.hidden_size / config.heads, 1u);
  config.head_dim = reader.count("head_dim", even_share, kMaxHeadDim);
  config.vocab_size = reader.count("vocab_size", std::nullopt, kMaxVocab);
  config.max_positions = reader.count("max_position_embeddings", 2048, kMaxPositions);
  config.rms_norm_eps = reader.number("rms_norm_eps", config.rms_norm_eps);
  config.rope_theta = reader.number("rope_theta", config.rope_theta);
  config.tie_word_embeddings = reader.flag("tie_word_embeddings");
  const std::string dtype = reader.text("torch_dtype", reader.text("dtype", "float32"));
  const std::optional<DType> known = parse_torch_dtype(dtype);
  if (!known) refuse_config(name, "torch_dtype " + base::quoted(dtype) + " is not supported");
  config.dtype = *known;
  if (const std::vector<TokenId> bos = reader.tokens("bos_token_id"); !bos.empty()) {
    config.bos = bos.front();
  }
  config.eos = reader.tokens("eos_token_id");
  check_model_config(config, name);
  return config;
}

ModelConfig read_model_config(const std::string& dir) {
  const std::string path = dir + "/config.json";
  return parse_model_config(os::read_file(path, kMaxConfigBytes), path);
}

std::string format_model_config(const ModelConfig& config) {
  nlohmann::ordered_json object{
      {"architectures", {"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"hidden_act", "silu"},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.intermediate_size},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", config.head_dim},
      {"vocab_size", config.vocab_size},
      {"max_position_embeddings", config.max_positions},
      {"rms_norm_eps", config.rms_norm_eps},
      {"rope_theta", config.rope_theta},
      {"tie_word_embeddings", config.tie_word_embeddings},
      {"torch_dtype", torch_dtype_name(config.dtype)},
  };
  if (config.bos) object["bos_token_id"] = *config.bos;
  if (config.eos.size() == 1) object["eos_token_id"] = config.eos.front();
  if (config.eos.size() > 1) object["eos_token_id"] = config.eos;
  return object.dump(2) + "\n";
}

void check_model_config(const ModelConfig& config, const std::string& name) {
  const auto check = [&](const char* key, std::uint32_t value, std::uint32_t most) {
    if (value == 0 || value > most) {
      refuse_config(name, std::string(key) + " is not a number from 1 to " + std::to_string(most));
    }
  };
  check("hidden_size", config.hidden_size, kMaxHidden);
  check("intermediate_size", config.intermediate_size, kMaxIntermediate);
  check("num_hidden_layers", config.layers, kMaxLayers);
  check("num_attention_heads", config.heads, kMaxHeads);
  check("num_key_value_heads", config.kv_heads, kMaxHeads);
  check("head_dim", config.head_dim, kMaxHeadDim);
  check("vocab_size", config.vocab_size, kMaxVocab);
  check("max_position_embeddings", config.max_positions, kMaxPositions);
  if (config.heads % config.kv_heads != 0) {
    refuse_config(name, "num_attention_heads is not a multiple of num_key_value_heads");
  }
  if (config.head_dim % 2 != 0) refuse_config(name, "head_dim is odd");
  if (!(config.rms_norm_eps > 0 && config.rms_norm_eps < 1)) {
    refuse_config(name, "rms_norm_eps is not between 0 and 1");
  }
  if (!(config.rope_theta >= 1 && std::isfinite(config.rope_theta))) {
    refuse_config(name, "rope_theta is not a number above 1");
  }
  const auto outside = [&](TokenId id) { return id >= config.vocab_size; };
  if (config.bos && outside(*config.bos))
    refuse_config(name, "bos_token_id is outside the vocabulary");
  if (std::any_of(config.eos.begin(), config.eos.end(), outside)) {
    refuse_config(name, "eos_token_id is outside the vocabulary");
  }
}

std::vector<TensorSpec> model_tensors(const ModelConfig& config) {
  const std::uint64_t hidden = config.hidden_size;
  const std::uint64_t queries = std::uint64_t{config.heads} * config.head_dim;
  const std::uint64_t keys = std::uint64_t{config.kv_heads} * config.head_dim;
  const std::uint64_t inner = config.intermediate_size;
  std::vector<TensorSpec> tensors{{"model.embed_tokens.weight", {config.vocab_size, hidden}}};
  for (std::uint32_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    tensors.push_back({prefix + "input_layernorm.weight", {hidden}});
    tensors.push_back({prefix + "self_attn.q_proj.weight", {queries, hidden}});
    tensors.push_back({prefix + "self_attn.k_proj.weight", {keys, hidden}});
    tensors.push_back({prefix + "self_attn.v_proj.weight", {keys, hidden}});
    tensors.push_back({prefix + "self_attn.o_proj.weight", {hidden, queries}});
    tensors.push_back({prefix + "post_attention_layernorm.weight", {hidden}});
    tensors.push_back({prefix + "mlp.gate_proj.weight", {inner, hidden}});
    tensors.push_back({prefix + "mlp.up_proj.weight", {inner, hidden}});
    tensors.push_back({prefix + "mlp.down_proj.weight", {hidden, inner}});
  }
  tensors.push_back({"model.norm.weight", {hidden}});
  if (!config.tie_word_embeddings) {
    tensors.push_back({"lm_head.weight", {config.vocab_size, hidden}});
  }
  return tensors;
}

}  // namespace fo::refengine
