// The tokens of prompts and chats, and the requests that show tokens as text and back. Pure. Each
// function throws ApiError 400; those with `model_name` throw 404 for another model's name.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "refengine/api/request_fields.h"
#include "refengine/model/model_config.h"

namespace fo::refengine {

inline constexpr std::size_t kMaxMessages = 1024;
/// Maximum number of parts of a message.
inline constexpr std::size_t kMaxParts = 64;

/// The member "prompt" of a completion: text, or token ids. Text follows the model's bos unless
/// "add_special_tokens" is false.
std::vector<TokenId> read_prompt(const nlohmann::json& body, const ModelConfig& config);

/// The member "messages" in the chat template of fo-refengine(1), which begins with the model's
/// bos. "add_special_tokens" adds another one, as in vLLM.
std::vector<TokenId> read_chat(const nlohmann::json& body, const ModelConfig& config);

/// The body of POST /tokenize: text or a chat.
struct TokenizeRequest {
  std::vector<TokenId> tokens;
  bool return_token_strs = false;
};
TokenizeRequest parse_tokenize(std::string_view body, const ModelConfig& config,
                               const std::string& model_name);

/// The tokens in the body of POST /detokenize.
std::vector<TokenId> parse_detokenize(std::string_view body, const ModelConfig& config,
                                      const std::string& model_name);

}  // namespace fo::refengine
