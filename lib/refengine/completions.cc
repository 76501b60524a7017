#include "refengine/completions.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "refengine/tokens.h"

namespace fo::refengine {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& what) { throw ApiError(400, what); }

// Absent and null are one.
const json* find(const json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

bool flag(const json& object, const char* key) {
  const json* value = find(object, key);
  if (value == nullptr) return false;
  if (!value->is_boolean()) refuse(std::string(key) + " is not true or false");
  return value->get<bool>();
}

void refuse_unsupported(const json& body) {
  for (const char* key : {"n", "best_of"}) {
    const json* value = find(body, key);
    if (value != nullptr && *value != 1)
      refuse(std::string(key) + " other than 1 is not supported");
  }
  if (flag(body, "echo")) refuse("echo is not supported");
  for (const char* key : {"stop", "suffix", "logprobs"}) {
    if (find(body, key) != nullptr) refuse(std::string(key) + " is not supported");
  }
}

std::vector<TokenId> read_prompt(const json& body, const ModelConfig& config) {
  const json* prompt = find(body, "prompt");
  if (prompt == nullptr) refuse("prompt is missing");
  if (prompt->is_string()) return encode_text(prompt->get_ref<const std::string&>(), config);
  if (!prompt->is_array()) refuse("prompt is neither a string nor a list of token ids");
  std::vector<TokenId> tokens;
  tokens.reserve(prompt->size());
  for (const json& token : *prompt) {
    if (!token.is_number_unsigned() || token.get<std::uint64_t>() >= config.vocab_size) {
      refuse("prompt is not a list of token ids below " + std::to_string(config.vocab_size));
    }
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

ordered_json usage(const Generation& generation) {
  const std::size_t output = generation.output().size();
  return {{"prompt_tokens", generation.prompt_tokens()},
          {"completion_tokens", output},
          {"total_tokens", generation.prompt_tokens() + output}};
}

ordered_json answer(const CompletionHead& head, ordered_json choices) {
  return {{"id", head.id},
          {"object", "text_completion"},
          {"created", head.created},
          {"model", head.model},
          {"choices", std::move(choices)}};
}

ordered_json choice(std::string_view text, std::span<const TokenId> tokens,
                    std::string_view finish) {
  ordered_json object{{"index", 0},
                      {"text", text},
                      {"logprobs", nullptr},
                      {"finish_reason", nullptr},
                      {"token_ids", std::vector<TokenId>(tokens.begin(), tokens.end())}};
  if (!finish.empty()) object["finish_reason"] = finish;
  return object;
}

std::string dump(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

CompletionRequest parse_completion(std::string_view text, const ModelConfig& config,
                                   const std::string& model_name) {
  const json body = json::parse(text, nullptr, false);
  if (!body.is_object()) refuse("the body is not a JSON object");
  if (const json* model = find(body, "model"); model != nullptr && *model != model_name) {
    throw ApiError(404, "the model " + model->dump(-1, ' ', true, json::error_handler_t::replace) +
                            " does not exist");
  }
  refuse_unsupported(body);
  CompletionRequest request;
  try {
    request.prompt = read_prompt(body, config);
  } catch (const base::Error& error) {
    refuse(error.what());
  }
  if (const json* most = find(body, "max_tokens"); most != nullptr) {
    if (!most->is_number_unsigned() || most->get<std::uint64_t>() == 0) {
      refuse("max_tokens is not a number over 0");
    }
    request.max_tokens = most->get<std::uint64_t>();
  }
  request.stream = flag(body, "stream");
  if (const json* options = find(body, "stream_options"); options != nullptr) {
    if (!options->is_object()) refuse("stream_options is not an object");
    request.include_usage = flag(*options, "include_usage");
  }
  return request;
}

std::string format_completion(const CompletionHead& head, const Generation& generation,
                              std::string_view finish) {
  ordered_json body = answer(head, ordered_json::array({choice(decode_tokens(generation.output()),
                                                               generation.output(), finish)}));
  body["usage"] = usage(generation);
  return dump(body);
}

std::string format_chunk(const CompletionHead& head, std::string_view text,
                         std::span<const TokenId> tokens, std::string_view finish) {
  return "data: " + dump(answer(head, ordered_json::array({choice(text, tokens, finish)}))) +
         "\n\n";
}

std::string format_usage_chunk(const CompletionHead& head, const Generation& generation) {
  ordered_json body = answer(head, ordered_json::array());
  body["usage"] = usage(generation);
  return "data: " + dump(body) + "\n\n";
}

std::string format_models(const std::string& model_name, std::int64_t created,
                          std::uint32_t positions) {
  const ordered_json model{{"id", model_name},
                           {"object", "model"},
                           {"created", created},
                           {"owned_by", "fo-refengine"},
                           {"max_model_len", positions}};
  return dump({{"object", "list"}, {"data", ordered_json::array({model})}});
}

}  // namespace fo::refengine
