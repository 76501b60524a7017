#include "refengine/model/model_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/failure.h"

namespace fo::refengine {
namespace {

using base::Error;
using base::ExitStatus;
using nlohmann::json;
using test::Failure;
using test::failure_of;

json valid() {
  return {{"model_type", "llama"},       {"hidden_size", 64},
          {"intermediate_size", 128},    {"num_hidden_layers", 2},
          {"num_attention_heads", 8},    {"num_key_value_heads", 2},
          {"vocab_size", 300},           {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},        {"rope_theta", 500000.0},
          {"tie_word_embeddings", true}, {"torch_dtype", "bfloat16"},
          {"bos_token_id", 256},         {"eos_token_id", {257, 258}}};
}

json with(const char* key, const json& value) {
  json object = valid();
  object[key] = value;
  return object;
}

std::string config_refusal(const json& object) {
  const Failure failure = failure_of([&] { parse_model_config(object.dump(), "c.json"); });
  EXPECT_EQ(failure.status, ExitStatus::kBadData);
  return failure.message;
}

TEST(ModelConfig, ReadsHuggingFaceNames) {
  const ModelConfig config = parse_model_config(valid().dump(), "c.json");
  EXPECT_EQ(config.hidden_size, 64u);
  EXPECT_EQ(config.intermediate_size, 128u);
  EXPECT_EQ(config.layers, 2u);
  EXPECT_EQ(config.heads, 8u);
  EXPECT_EQ(config.kv_heads, 2u);
  EXPECT_EQ(config.head_dim, 8u);
  EXPECT_EQ(config.vocab_size, 300u);
  EXPECT_EQ(config.max_positions, 512u);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.rope_theta, 500000.0);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, DType::kBf16);
  EXPECT_EQ(config.bos, 256u);
  EXPECT_EQ(config.eos, (std::vector<TokenId>{257, 258}));
}

TEST(ModelConfig, AbsentAndNullMeanTheUsualDefaults) {
  json object = valid();
  for (const char* key : {"num_key_value_heads", "rope_theta", "tie_word_embeddings",
                          "bos_token_id", "rms_norm_eps", "torch_dtype"}) {
    object.erase(key);
  }
  object["eos_token_id"] = nullptr;
  object["head_dim"] = nullptr;
  object["rope_scaling"] = nullptr;
  const ModelConfig config = parse_model_config(object.dump(), "c.json");
  EXPECT_EQ(config.kv_heads, 8u);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.bos.has_value());
  EXPECT_TRUE(config.eos.empty());
  EXPECT_EQ(config.dtype, DType::kF32);
}

TEST(ModelConfig, WhatIsWrittenIsReadBack) {
  const ModelConfig config = parse_model_config(valid().dump(), "c.json");
  const std::string text = format_model_config(config);
  EXPECT_EQ(format_model_config(parse_model_config(text, "again")), text);
}

TEST(ModelConfig, SaysWhatIsWrong) {
  EXPECT_EQ(config_refusal(with("hidden_size", 0)),
            "model config 'c.json': hidden_size is not a number from 1 to 65536");
  json missing = valid();
  missing.erase("vocab_size");
  EXPECT_EQ(config_refusal(missing), "model config 'c.json': vocab_size is missing");
}

TEST(ModelConfig, RefusesNumbersThatAreNoModel) {
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, json>>{
           {"hidden_size", -64},
           {"hidden_size", 64.5},
           {"hidden_size", "64"},
           {"hidden_size", 1ull << 40},
           {"num_hidden_layers", 0},
           {"num_hidden_layers", 100000},
           {"num_attention_heads", 0},
           {"num_key_value_heads", 3},
           {"num_key_value_heads", 16},
           {"head_dim", 7},
           {"vocab_size", 1ull << 33},
           {"max_position_embeddings", 0},
           {"rms_norm_eps", 0},
           {"rms_norm_eps", -1e-5},
           {"rms_norm_eps", "small"},
           {"rope_theta", 0},
           {"tie_word_embeddings", 1},
           {"bos_token_id", 300},
           {"eos_token_id", 300},
           {"eos_token_id", json::array({1, "2"})},
           {"eos_token_id", std::vector<int>(17, 1)}}) {
    EXPECT_NE(config_refusal(with(key, value)), "") << key << " " << value;
  }
}

TEST(ModelConfig, RefusesWhatItCannotRun) {
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, json>>{
           {"model_type", "qwen2"},
           {"hidden_act", "gelu"},
           {"attention_bias", true},
           {"mlp_bias", true},
           {"rope_scaling", {{"type", "linear"}}},
           {"rope_parameters", {{"rope_type", "default"}}},
           {"sliding_window", 4096},
           {"quantization_config", {{"bits", 4}}},
           {"torch_dtype", "float64"}}) {
    EXPECT_NE(config_refusal(with(key, value)), "") << key;
  }
}

TEST(ModelConfig, RefusesWhatIsNoJsonObject) {
  for (const char* text : {"", "[]", "{", "null", "{\"hidden_size\":64,}", "\xFF"}) {
    EXPECT_THROW(parse_model_config(text, "c.json"), Error) << text;
  }
  const std::string whole = valid().dump();
  EXPECT_THROW(parse_model_config(whole + '\0', "c.json"), Error);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(parse_model_config(whole.substr(0, size), "c.json"), Error);
  }
}

TEST(ModelConfig, NestingIsLimitedBeforeItCanExhaustTheStack) {
  std::string text = valid().dump();
  text.back() = ',';
  text += R"("eos_token_id":)" + std::string(300'000, '[') + std::string(300'000, ']') + "}";
  EXPECT_EQ(failure_of([&] { parse_model_config(text, "c.json"); }).message,
            "model config 'c.json': nested too deeply");
}

TEST(ModelConfig, AnAbsentFolderIsNoInput) {
  EXPECT_EQ(failure_of([] { read_model_config("/nonexistent/model"); }).status,
            ExitStatus::kNoInput);
}

TEST(ModelConfig, ListsEveryTensorOnce) {
  const ModelConfig config = parse_model_config(valid().dump(), "c.json");
  const std::vector<TensorSpec> tensors = model_tensors(config);
  EXPECT_EQ(tensors.size(), 2u * 9 + 2);
  EXPECT_EQ(tensors.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(tensors.back().name, "model.norm.weight");
  ModelConfig untied = config;
  untied.tie_word_embeddings = false;
  EXPECT_EQ(model_tensors(untied).back().name, "lm_head.weight");
  EXPECT_EQ(tensors[3].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(tensors[3].shape, (std::vector<std::uint64_t>{16, 64}));
}

}  // namespace
}  // namespace fo::refengine
