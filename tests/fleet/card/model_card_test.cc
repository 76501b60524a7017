#include "fleet/card/model_card.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fleet/card/digest.h"
#include "model_folder.h"
#include "support/failure.h"

namespace fo::fleet {
namespace {

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
  "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "bos_token_id": 1,
  "eos_token_id": 2, "rope_theta": 10000.0, "transformers_version": "4.51.0"})";
constexpr const char* kTokenizerConfig = R"({
  "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null,
  "added_tokens_decoder": {"7": {"content": "<s>"}, "8": {"content": "</s>"},
                           "9": {"content": "<pad>"}},
  "chat_template": "{{ messages }}", "model_max_length": 1000000000000000019884624838656})";
constexpr const char* kGenerationConfig = R"({
  "temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": true, "eos_token_id": [8, 10],
  "transformers_version": "4.51.0"})";

std::string digest_of_text(const std::string& text) {
  return std::string(kDigestPrefix) + sha256_hex(text);
}

class ModelCard : public ModelFolder {
 protected:
  ModelCard() {
    write("config.json", kConfig);
    write("model.safetensors", safetensors("weights"));
    write("tokenizer.json", R"({"model": {}})");
    write("tokenizer_config.json", kTokenizerConfig);
    write("generation_config.json", kGenerationConfig);
    options_.folder = folder();
  }

  [[nodiscard]] Card card() const { return model_card(options_); }
  [[nodiscard]] test::Failure failure() const {
    return test::failure_of([&] { (void)card(); });
  }
  /// The names of the fields that differ from those of `before`.
  [[nodiscard]] std::vector<std::string> changed_since(const Card& before) const {
    const auto was = fields_of(before);
    const auto is = fields_of(card());
    std::vector<std::string> names;
    for (std::size_t i = 0; i < is.size(); ++i) {
      if (was[i].value != is[i].value) names.emplace_back(is[i].name);
    }
    return names;
  }

  ModelCardOptions options_;
};

using Names = std::vector<std::string>;

TEST_F(ModelCard, DescribesTheFolder) {
  const Card card = this->card();
  EXPECT_EQ(card.name, "model");
  EXPECT_EQ(card.architecture, "LlamaForCausalLM");
  EXPECT_EQ(card.dtype, "bfloat16");
  EXPECT_EQ(card.quantization, "");
  EXPECT_EQ(card.context_length, 8192);
  EXPECT_EQ(card.config, digest_of_text(R"({"bos_token_id":1,"eos_token_id":2,"hidden_size":64,)"
                                        R"("max_position_embeddings":8192,"rope_theta":10000})"));
  const std::string weights = safetensors("weights");
  EXPECT_EQ(card.weights, digest_of({{"model.safetensors", weights.size(), sha256_hex(weights)}}));
  EXPECT_EQ(card.revision, "");
  EXPECT_TRUE(is_digest(card.tokenizer));
  EXPECT_EQ(card.chat_template, digest_of_text("{{ messages }}"));
  EXPECT_EQ(card.generation_config,
            digest_of_text(R"({"do_sample":true,"eos_token_id":[8,10],"temperature":0.6,)"
                           R"("top_k":20,"top_p":0.95})"));
  EXPECT_EQ(card.special_ids, (std::map<std::string, std::uint64_t>{{"bos", 7}, {"eos", 8}}));
  EXPECT_EQ(card.stop_ids, (std::vector<std::uint64_t>{8, 10}));
  EXPECT_EQ(card.generation_defaults,
            (std::map<std::string, double>{{"temperature", 0.6}, {"top_k", 20}, {"top_p", 0.95}}));
  EXPECT_EQ(parse_card(to_json(card).dump(), "f"), card);
}

TEST_F(ModelCard, PrefersTheOptionsOfTheEngine) {
  const Card before = card();
  options_.given.name = "llama";
  options_.given.aliases = {"chat"};
  options_.given.dtype = "float16";
  options_.given.quantization = "fp8";
  options_.given.context_length = 4096;
  options_.given.revision = "main";
  options_.reasoning_parser = "qwen3";
  options_.tool_parser = "hermes";
  options_.given.draft = "tiny";
  options_.given.kv_abi = "nixl";
  options_.given.end_of_thinking = {3, 4};
  options_.given.stop_ids = {5};
  const Card changed = card();
  EXPECT_EQ(changed.name, "llama");
  EXPECT_EQ(changed.dtype, "float16");
  EXPECT_EQ(changed.quantization, "fp8");
  EXPECT_EQ(changed.context_length, 4096);
  EXPECT_EQ(changed.parsers,
            (std::map<std::string, std::string>{{"reasoning", "qwen3"}, {"tools", "hermes"}}));
  EXPECT_EQ(changed.stop_ids, (std::vector<std::uint64_t>{5}));
  EXPECT_EQ(changed_since(before),
            (Names{"name", "aliases", "dtype", "quantization", "context_length", "revision",
                   "parsers", "draft", "kv_abi", "end_of_thinking", "stop_ids"}));
}

TEST_F(ModelCard, ChangesOnlyInTheFieldOfAFile) {
  const Card before = card();
  const auto changed_by = [&](const std::string& name, const std::string& text) {
    const std::string was = test::slurp(path(name));
    write(name, text);
    const Names changed = changed_since(before);
    write(name, was);
    return changed;
  };
  const auto with = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_EQ(changed_by("model.safetensors", safetensors("Weights")), Names{"weights"});
  EXPECT_EQ(changed_by("tokenizer.json", "{}"), Names{"tokenizer"});
  EXPECT_EQ(changed_by("tokenizer_config.json", with(kTokenizerConfig, "messages", "m")),
            Names{"chat_template"});
  EXPECT_EQ(changed_by("tokenizer_config.json", with(kTokenizerConfig, "false", "true")),
            Names{"tokenizer"});
  EXPECT_EQ(changed_by("generation_config.json", with(kGenerationConfig, "true", "false")),
            Names{"generation_config"});
  EXPECT_EQ(changed_by("config.json", with(kConfig, "10000.0", "20000.0")), Names{"config"});
  EXPECT_EQ(changed_by("config.json", with(kConfig, "bfloat16", "float32")), Names{"dtype"});
  EXPECT_EQ(changed_by("config.json", with(kConfig, "Llama", "Qwen3")), Names{"architecture"});
  // What does not change what a worker computes.
  EXPECT_EQ(changed_by("config.json", with(kConfig, "4.51.0", "4.52.0")), Names{});
  EXPECT_EQ(changed_by("config.json", with(kConfig, "10000.0", "1e4")), Names{});
  EXPECT_EQ(changed_by("generation_config.json", with(kGenerationConfig, "4.51.0", "5.0.0")),
            Names{});
}

TEST_F(ModelCard, ReadsTheChatTemplateFromItsPlaces) {
  write("chat_template.json", R"({"chat_template": "from json"})");
  EXPECT_EQ(card().chat_template, digest_of_text("from json"));
  write("chat_template.jinja", "from jinja");
  EXPECT_EQ(card().chat_template, digest_of_text("from jinja"));
  options_.chat_template = dir_.path("own.jinja");
  test::spill(options_.chat_template, "own");
  EXPECT_EQ(card().chat_template, digest_of_text("own"));
}

TEST_F(ModelCard, ReadsOtherFilesOfTheEngine) {
  const Card before = card();
  std::filesystem::create_directory(dir_.path("tokenizer"));
  options_.tokenizer = dir_.path("tokenizer");
  EXPECT_EQ(failure().status, base::ExitStatus::kNoInput);
  EXPECT_EQ(failure().message,
            "open tokenizer '" + dir_.path("tokenizer") + "': no tokenizer files");
  test::spill(dir_.path("tokenizer/tokenizer.json"), "{}");
  test::spill(dir_.path("tokenizer/tokenizer_config.json"), R"({"chat_template": "t"})");
  EXPECT_EQ(card().chat_template, digest_of_text("t"));
  EXPECT_NE(card().tokenizer, before.tokenizer);
  options_.tokenizer = "";
  options_.generation_config = dir_.path("generation.json");
  test::spill(options_.generation_config, R"({"top_k": 1, "eos_token_id": 8})");
  EXPECT_EQ(changed_since(before), (Names{"generation_config", "stop_ids", "generation_defaults"}));
}

TEST_F(ModelCard, NeedsNoTokenizerOrGenerationConfig) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    std::filesystem::remove(path(name));
  }
  const Card bare = card();
  EXPECT_EQ(bare.tokenizer, "");
  EXPECT_EQ(bare.chat_template, "");
  EXPECT_EQ(bare.generation_config, "");
  EXPECT_EQ(bare.special_ids, (std::map<std::string, std::uint64_t>{{"bos", 1}, {"eos", 2}}));
  EXPECT_EQ(bare.stop_ids, (std::vector<std::uint64_t>{2}));
}

TEST_F(ModelCard, HasTheMethodOfQuantizationAndItsParameters) {
  const auto with = [&](const std::string& quantization) {
    write("config.json", R"({"quantization_config": )" + quantization + "}");
    return card();
  };
  const Card dynamic = with(R"({"quant_method": "fp8", "scheme": "dynamic"})");
  EXPECT_EQ(dynamic.quantization, "fp8");
  (void)with(R"({"scheme": "static", "quant_method": "fp8"})");
  EXPECT_EQ(changed_since(dynamic), Names{"config"});
  // The engine's option may repeat the method.
  (void)with(R"({"quant_method": "fp8", "scheme": "dynamic"})");
  options_.given.quantization = "fp8";
  EXPECT_EQ(card(), dynamic);
}

TEST_F(ModelCard, ReadsTheLanguageModelOfSeveralModalities) {
  write("config.json", R"({"model_type": "gemma3", "text_config": {"dtype": "bfloat16",
      "max_position_embeddings": 131072, "quantization_config": {"quant_method": "awq"}}})");
  const Card found = card();
  EXPECT_EQ(found.architecture, "gemma3");
  EXPECT_EQ(found.dtype, "bfloat16");
  EXPECT_EQ(found.context_length, 131072);
  EXPECT_EQ(found.quantization, "awq");
}

TEST_F(ModelCard, ReadsTheFilesOfTheIndex) {
  const Card before = card();
  write("a.safetensors", safetensors("a"));
  write("b.safetensors", safetensors("b"));
  write("model.safetensors.index.json",
        R"({"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"}})");
  const Card sharded = card();
  EXPECT_EQ(changed_since(before), Names{"weights"});
  // A file that the index does not name is not part of the model.
  write("model.safetensors", safetensors("other"));
  EXPECT_EQ(card(), sharded);
  std::filesystem::remove(path("a.safetensors"));
  EXPECT_EQ(failure().status, base::ExitStatus::kNoInput);
  write("model.safetensors.index.json", R"({"weight_map": {}})");
  EXPECT_EQ(failure().message,
            "read '" + path("model.safetensors.index.json") + "': it names no files");
}

TEST_F(ModelCard, HasTheNameAndRevisionOfTheHuggingFaceCache) {
  const std::string snapshots = dir_.path("models--Qwen--Qwen3-0.6B--FP8/snapshots");
  std::filesystem::create_directories(snapshots);
  std::filesystem::rename(folder(), snapshots + "/c1899de289a04d12100db370d81485cdf75e47ca");
  std::filesystem::create_directory_symlink(snapshots + "/c1899de289a04d12100db370d81485cdf75e47ca",
                                            folder());
  EXPECT_EQ(card().name, "Qwen/Qwen3-0.6B--FP8");
  EXPECT_EQ(card().revision, "c1899de289a04d12100db370d81485cdf75e47ca");
}

TEST_F(ModelCard, HasADigestOfEachAdapter) {
  std::filesystem::create_directory(dir_.path("sql"));
  const std::string config = "{}";
  const std::string weights = safetensors("lora");
  test::spill(dir_.path("sql/adapter_config.json"), config);
  options_.adapters = {{"sql", dir_.path("sql")}};
  EXPECT_EQ(failure().status, base::ExitStatus::kNoInput);
  test::spill(dir_.path("sql/adapter_model.safetensors"), weights);
  EXPECT_EQ(card().adapters.at("sql"),
            digest_of({{"adapter_config.json", config.size(), sha256_hex(config)},
                       {"adapter_model.safetensors", weights.size(), sha256_hex(weights)}}));
}

TEST_F(ModelCard, NeedsAFolderWithAConfigurationAndWeights) {
  std::filesystem::remove(path("model.safetensors"));
  EXPECT_EQ(failure().status, base::ExitStatus::kNoInput);
  EXPECT_EQ(failure().message,
            "open model '" + folder() + "': no model.safetensors.index.json or model.safetensors");
  std::filesystem::remove(path("config.json"));
  EXPECT_EQ(failure().status, base::ExitStatus::kNoInput);
  EXPECT_EQ(failure().message, "open '" + path("config.json") + "': No such file or directory");
  options_.folder = dir_.path("absent");
  EXPECT_EQ(failure().status, base::ExitStatus::kNoInput);
  EXPECT_EQ(failure().message, "open '" + dir_.path("absent") + "': No such file or directory");
}

TEST_F(ModelCard, RefusesMalformedFiles) {
  for (const char* name : {"config.json", "tokenizer_config.json", "generation_config.json",
                           "chat_template.json", "model.safetensors.index.json"}) {
    const std::string was = test::slurp(path(name));
    write(name, "{");
    EXPECT_EQ(failure().status, base::ExitStatus::kBadData) << name;
    EXPECT_EQ(failure().message.substr(0, path(name).size() + 8), "read '" + path(name) + "':");
    write(name, was.empty() ? R"({"weight_map": {"t": "model.safetensors"}})" : was);
  }
  EXPECT_NO_THROW((void)card());
  // A broken link is an error, not a missing file.
  std::filesystem::remove(path("generation_config.json"));
  std::filesystem::create_symlink("absent", path("generation_config.json"));
  EXPECT_EQ(failure().status, base::ExitStatus::kNoInput);
}

TEST_F(ModelCard, RefusesACardThatNoRegistryTakes) {
  options_.given.name = "\xff";
  EXPECT_EQ(failure().status, base::ExitStatus::kBadData);
  EXPECT_EQ(failure().message, "create card of '" + folder() + "': text that is not UTF-8");
  options_.given.name = std::string(70'000, 'a');
  EXPECT_EQ(failure().message, "create card of '" + folder() + "': longer than 64 KiB");
}

TEST_F(ModelCard, SurvivesUnexpectedTypes) {
  write("config.json", R"({"architectures": "x", "model_type": 1, "torch_dtype": [],
      "max_position_embeddings": -1, "text_config": 7, "quantization_config": "fp8",
      "eos_token_id": {"a": 1}, "bos_token_id": "x"})");
  write("tokenizer_config.json", R"({"eos_token": 5, "bos_token": {"content": 1},
      "added_tokens_decoder": {"x": {"content": 5}, "1": 2, "-1": {"content": 1}}})");
  write("generation_config.json", R"({"temperature": "hot"})");
  const Card odd = card();
  EXPECT_EQ(odd.architecture, "");
  EXPECT_EQ(odd.dtype, "");
  EXPECT_EQ(odd.context_length, 0);
  EXPECT_TRUE(odd.special_ids.empty());
  EXPECT_TRUE(odd.stop_ids.empty());
  EXPECT_TRUE(odd.generation_defaults.empty());
}

}  // namespace
}  // namespace fo::fleet
