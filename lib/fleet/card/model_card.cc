#include "fleet/card/model_card.h"

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "fleet/card/digest.h"
#include "json/canonical.h"
#include "json/object.h"
#include "os/file/file.h"
#include "weights/file/model_index.h"

namespace fo::fleet {
namespace {

using base::ByteCount;
using base::Error;
using base::ExitStatus;
using Json = nlohmann::json;

constexpr ByteCount kMaxConfig = ByteCount{16} << 20;
constexpr ByteCount kMaxTokenizer = ByteCount{256} << 20;

constexpr const char* kTokenizerConfig = "tokenizer_config.json";
// In order of name, without kTokenizerConfig.
constexpr const char* kTokenizerFiles[] = {"added_tokens.json",
                                           "merges.txt",
                                           "sentencepiece.bpe.model",
                                           "special_tokens_map.json",
                                           "spiece.model",
                                           "tekken.json",
                                           "tiktoken.model",
                                           "tokenizer.json",
                                           "tokenizer.model",
                                           "vocab.json",
                                           "vocab.txt"};

// Members of config.json that do not change what a worker computes, or are fields of the card.
constexpr const char* kNotConfig[] = {
    "_commit_hash", "_name_or_path", "architectures",       "dtype",
    "model_type",   "torch_dtype",   "transformers_version"};

bool exists(const std::string& path) {
  std::error_code error;
  const bool found = std::filesystem::exists(std::filesystem::symlink_status(path, error));
  if (error && error != std::errc::no_such_file_or_directory) {
    base::throw_errno(error.value(), "open " + base::quoted(path));
  }
  return found;
}

Json read_object(const std::string& path, ByteCount limit = kMaxConfig) {
  const std::string text = os::read_file(path, limit);
  try {
    return fo::json::parse_object(text, limit);
  } catch (const fo::json::Misfit& misfit) {
    throw Error(ExitStatus::kBadData, "read " + base::quoted(path) + ": " + misfit.what());
  }
}

// An empty object if the file is missing.
Json find_object(const std::string& path) {
  return exists(path) ? read_object(path) : Json::object();
}

std::string digest_text(std::string_view text) {
  return std::string(kDigestPrefix) + sha256_hex(text);
}

// The digest of a value as canonical JSON.
std::string digest_json(const Json& value) { return digest_text(fo::json::canonical(value)); }

// The first of these members that is a string; "" if there is none.
std::string text_of(const Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const Json* member = fo::json::find(object, key);
    if (member != nullptr && member->is_string()) return member->get<std::string>();
  }
  return {};
}

std::uint64_t number_of(const Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const Json* member = fo::json::find(object, key);
    if (member != nullptr && member->is_number_unsigned()) return member->get<std::uint64_t>();
  }
  return 0;
}

// A model of several modalities has the configuration of its language model in a member.
Json text_config_of(const Json& config) {
  const Json* text = fo::json::find(config, "text_config");
  return text != nullptr && text->is_object() ? *text : Json::object();
}

std::string architecture_of(const Json& config) {
  const Json* list = fo::json::find(config, "architectures");
  if (list != nullptr && list->is_array() && !list->empty() && list->front().is_string()) {
    return list->front().get<std::string>();
  }
  return text_of(config, {"model_type"});
}

// The method; its parameters are in the digest of the configuration.
std::string quantization_of(const Json& config, const Json& text_config) {
  for (const Json* object : {&config, &text_config}) {
    const Json* found = fo::json::find(*object, "quantization_config");
    if (found != nullptr) return text_of(*found, {"quant_method"});
  }
  return {};
}

std::vector<std::string> weight_files(const std::string& folder) {
  const std::string index = folder + "/model.safetensors.index.json";
  if (exists(index)) {
    std::set<std::string> names;
    const auto file_of =
        weights::parse_model_index(os::read_file(index, weights::kMaxIndex), index);
    for (const auto& [tensor, file] : file_of) names.insert(file);
    if (names.empty()) {
      throw Error(ExitStatus::kBadData, "read " + base::quoted(index) + ": it names no files");
    }
    return {names.begin(), names.end()};
  }
  const std::string single = "model.safetensors";
  if (exists(folder + "/" + single)) return {single};
  throw Error(ExitStatus::kNoInput, "open model " + base::quoted(folder) +
                                        ": no model.safetensors.index.json or model.safetensors");
}

std::string tokenizer_digest(const std::string& folder, Json config) {
  std::vector<FileDigest> files;
  const auto add = [&files](const char* name, const std::string& content) {
    files.push_back({name, content.size(), sha256_hex(content)});
  };
  for (const char* name : kTokenizerFiles) {
    const std::string path = folder + "/" + name;
    if (exists(path)) add(name, os::read_file(path, kMaxTokenizer));
  }
  config.erase("chat_template");
  if (!config.empty()) add(kTokenizerConfig, fo::json::canonical(config));
  return files.empty() ? "" : digest_of(files);
}

// A template is a text, or a list of several with their names.
std::string template_digest(const Json* value) {
  if (value == nullptr) return {};
  return value->is_string() ? digest_text(value->get_ref<const std::string&>())
                            : digest_json(*value);
}

std::string chat_template_digest(const ModelCardOptions& options, const std::string& folder,
                                 const Json& tokenizer_config) {
  if (!options.chat_template.empty()) {
    return digest_text(os::read_file(options.chat_template, kMaxConfig));
  }
  const std::string text = folder + "/chat_template.jinja";
  if (exists(text)) return digest_text(os::read_file(text, kMaxConfig));
  const std::string object = folder + "/chat_template.json";
  const Json in_file = find_object(object);
  return template_digest(
      fo::json::find(in_file.empty() ? tokenizer_config : in_file, "chat_template"));
}

// The id of a special token such as "eos": by its text in the tokenizer's configuration, else as
// the model's configurations have it.
std::optional<std::uint64_t> special_id(const std::string& name, const Json& tokenizer_config,
                                        const Json& generation, const Json& config) {
  const std::string token_key = name + "_token";
  const Json* token = fo::json::find(tokenizer_config, token_key.c_str());
  const Json* added = fo::json::find(tokenizer_config, "added_tokens_decoder");
  if (token != nullptr && added != nullptr && added->is_object()) {
    const Json content = token->is_object() ? token->value("content", Json()) : *token;
    for (const auto& [id, entry] : added->items()) {
      const Json* text = fo::json::find(entry, "content");
      if (text == nullptr || *text != content) continue;
      std::uint64_t number = 0;
      const auto end = std::from_chars(id.data(), id.data() + id.size(), number);
      if (end.ec == std::errc() && end.ptr == id.data() + id.size()) return number;
    }
  }
  const std::string id_key = name + "_token_id";
  for (const Json* object : {&generation, &config}) {
    const Json* id = fo::json::find(*object, id_key.c_str());
    if (id != nullptr && id->is_number_unsigned()) return id->get<std::uint64_t>();
  }
  return std::nullopt;
}

std::vector<std::uint64_t> stop_ids(const Json& generation, const Json& config) {
  for (const Json* object : {&generation, &config}) {
    const Json* ids = fo::json::find(*object, "eos_token_id");
    if (ids == nullptr) continue;
    std::vector<std::uint64_t> found;
    for (const Json& id : ids->is_array() ? *ids : Json::array({*ids})) {
      if (id.is_number_unsigned()) found.push_back(id.get<std::uint64_t>());
    }
    return found;
  }
  return {};
}

std::map<std::string, double> generation_defaults(const Json& generation) {
  std::map<std::string, double> defaults;
  for (const char* key :
       {"max_new_tokens", "min_p", "repetition_penalty", "temperature", "top_k", "top_p"}) {
    const Json* value = fo::json::find(generation, key);
    if (value != nullptr && value->is_number()) defaults[key] = value->get<double>();
  }
  return defaults;
}

// The parts of a path in the Hugging Face cache: models--ORG--NAME/snapshots/REVISION.
struct CachePlace {
  std::string name;
  std::string revision;
};

CachePlace place_of(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(folder, error);
  if (error) base::throw_errno(error.value(), "open " + base::quoted(folder));
  constexpr std::string_view kModels = "models--";
  const std::string repository = path.parent_path().parent_path().filename().string();
  if (path.parent_path().filename() != "snapshots" || !repository.starts_with(kModels)) {
    return {path.filename().string(), ""};
  }
  std::string name = repository.substr(kModels.size());
  if (const std::size_t at = name.find("--"); at != name.npos) name.replace(at, 2, "/");
  return {std::move(name), path.filename().string()};
}

Card read_folder(const ModelCardOptions& options) {
  const std::string& folder = options.folder;
  const std::string& tokenizer = options.tokenizer.empty() ? folder : options.tokenizer;
  const auto fill = [](std::string& field, const std::string& value) {
    if (field.empty()) field = value;
  };
  const CachePlace place = place_of(folder);
  Json config = read_object(folder + "/config.json");
  const Json text_config = text_config_of(config);
  const Json tokenizer_config = find_object(tokenizer + "/" + kTokenizerConfig);
  Json generation = options.generation_config.empty()
                        ? find_object(folder + "/generation_config.json")
                        : read_object(options.generation_config);

  Card card = options.given;
  fill(card.name, place.name);
  card.architecture = architecture_of(config);
  fill(card.quantization, quantization_of(config, text_config));
  for (const Json* from : {&std::as_const(config), &text_config}) {
    fill(card.dtype, text_of(*from, {"dtype", "torch_dtype"}));
    if (card.context_length > 0) continue;
    card.context_length = number_of(*from, {"max_position_embeddings", "n_positions"});
  }
  fill(card.revision, place.revision);
  card.tokenizer = tokenizer_digest(tokenizer, tokenizer_config);
  if (card.tokenizer.empty() && !options.tokenizer.empty()) {
    throw Error(ExitStatus::kNoInput,
                "open tokenizer " + base::quoted(tokenizer) + ": no tokenizer files");
  }
  card.chat_template = chat_template_digest(options, tokenizer, tokenizer_config);
  if (!options.reasoning_parser.empty()) card.parsers["reasoning"] = options.reasoning_parser;
  if (!options.tool_parser.empty()) card.parsers["tools"] = options.tool_parser;
  for (const char* name : {"bos", "eos", "pad", "unk"}) {
    const auto id = special_id(name, tokenizer_config, generation, config);
    if (id) card.special_ids[name] = *id;
  }
  if (card.stop_ids.empty()) card.stop_ids = stop_ids(generation, config);
  card.generation_defaults = generation_defaults(generation);

  generation.erase("transformers_version");
  if (!generation.empty()) card.generation_config = digest_json(generation);
  for (const char* key : kNotConfig) config.erase(key);
  card.config = digest_json(config);
  card.weights = digest_of(digest_files(folder, weight_files(folder), options.digests));
  for (const auto& [name, path] : options.adapters) {
    card.adapters[name] = digest_of(
        digest_files(path, {"adapter_config.json", "adapter_model.safetensors"}, options.digests));
  }
  return card;
}

}  // namespace

Card model_card(const ModelCardOptions& options) {
  std::string reason;
  try {
    Card card = read_folder(options);
    if (to_json(card).dump().size() <= kMaxCardBytes) return card;
    reason = "longer than " + base::format_size(kMaxCardBytes);
  } catch (const fo::json::Misfit& misfit) {
    reason = misfit.what();
  }
  throw Error(ExitStatus::kBadData,
              "create card of " + base::quoted(options.folder) + ": " + reason);
}

}  // namespace fo::fleet
