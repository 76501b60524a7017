#include "refengine/api/prompt.h"

#include <nlohmann/json.hpp>

#include "json/object.h"

namespace fo::refengine {
namespace {

using nlohmann::json;

const std::string& read_string(const json& object, const char* key, const std::string& where) {
  const json* value = fo::json::find(object, key);
  if (value == nullptr || !value->is_string()) {
    throw ApiError(400, where + ": " + key + " is not a string", "messages");
  }
  return value->get_ref<const std::string&>();
}

std::string read_content(const json& message, const std::string& where) {
  const json* content = fo::json::find(message, "content");
  if (content == nullptr || !content->is_array()) return read_string(message, "content", where);
  if (content->size() > kMaxParts) {
    throw ApiError(400, where + ": content has over " + std::to_string(kMaxParts) + " parts",
                   "messages");
  }
  std::string text;
  for (const json& part : *content) {
    if (!part.is_object() || read_string(part, "type", where) != "text") {
      throw ApiError(400, where + ": content has a part that is not text", "messages");
    }
    text += read_string(part, "text", where);
  }
  return text;
}

std::string read_message(const json& message, const std::string& where) {
  if (!message.is_object()) throw ApiError(400, where + " is not an object", "messages");
  const std::string& role = read_string(message, "role", where);
  if (role != "system" && role != "developer" && role != "user" && role != "assistant") {
    throw ApiError(400, where + ": role is not system, developer, user or assistant", "messages");
  }
  return role + ": " + read_content(message, where);
}

}  // namespace

std::vector<TokenId> read_prompt(const json& body, const ModelConfig& config) {
  const json* prompt = fo::json::find(body, "prompt");
  if (prompt == nullptr) refuse("prompt", "is missing");
  const bool add_special = read_flag(body, "add_special_tokens", true);
  if (prompt->is_string()) {
    return encode_member(prompt->get_ref<const std::string&>(), add_special, "prompt", config);
  }
  if (!prompt->is_array()) refuse("prompt", "is neither a string nor a list of token ids");
  return read_tokens(*prompt, "prompt", config);
}

std::vector<TokenId> read_chat(const json& body, const ModelConfig& config) {
  const json* messages = fo::json::find(body, "messages");
  if (messages == nullptr) refuse("messages", "is missing");
  if (!messages->is_array() || messages->empty() || messages->size() > kMaxMessages) {
    refuse("messages", "is not a list of 1 to " + std::to_string(kMaxMessages) + " messages");
  }
  const bool continues = read_flag(body, "continue_final_message");
  const bool prompts = read_flag(body, "add_generation_prompt", true);
  if (continues && prompts) {
    refuse("continue_final_message", "needs add_generation_prompt to be false");
  }
  std::string text;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    text += read_message(messages->at(i), "messages[" + std::to_string(i) + "]") + "\n";
  }
  if (continues) text.pop_back();
  if (prompts) text += "assistant: ";
  std::vector<TokenId> tokens = encode_member(text, true, "messages", config);
  if (read_flag(body, "add_special_tokens") && config.bos) {
    tokens.insert(tokens.begin(), *config.bos);
  }
  return tokens;
}

TokenizeRequest parse_tokenize(std::string_view text, const ModelConfig& config,
                               const std::string& model_name) {
  const json body = parse_body(text);
  check_model(body, model_name);
  TokenizeRequest request;
  request.return_token_strs = read_flag(body, "return_token_strs");
  if (fo::json::find(body, "messages") != nullptr) {
    request.tokens = read_chat(body, config);
    return request;
  }
  const json* prompt = fo::json::find(body, "prompt");
  if (prompt != nullptr && !prompt->is_string()) refuse("prompt", "is not a string");
  request.tokens = read_prompt(body, config);
  return request;
}

std::vector<TokenId> parse_detokenize(std::string_view text, const ModelConfig& config,
                                      const std::string& model_name) {
  const json body = parse_body(text);
  check_model(body, model_name);
  const json* tokens = fo::json::find(body, "tokens");
  if (tokens == nullptr) refuse("tokens", "is missing");
  return read_tokens(*tokens, "tokens", config);
}

}  // namespace fo::refengine
