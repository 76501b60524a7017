// Parses the oracle's requests: OpenAI's completions and chats with vLLM's additions. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/knobs.h"
#include "oracle/model/generation.h"
#include "refengine/api/completion_request.h"

namespace fo::oracle {

using refengine::ApiError;
using refengine::Endpoint;

inline constexpr base::ByteCount kMaxBodyBytes = 16 * base::kMiB;
/// Maximum number of choices of an answer: "n" times the number of prompts.
inline constexpr std::size_t kMaxChoices = 128;

struct ModelInfo {
  std::string name = "oracle";
  Weights weights = {};
  /// Maximum number of tokens of a prompt and its answer together.
  std::uint64_t max_model_len = 32768;
  /// Adapters of the model (LoRA), whose names can be requested in place of its own: each gives
  /// other tokens.
  std::vector<std::string> adapters = {};
  /// Parameters of sampling that its authors recommend: those of requests without their own.
  std::map<std::string, double> defaults = {};
};

struct CompletionRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  /// Name of the model or an adapter.
  std::string model;
  /// Prompts; at least one.
  std::vector<std::vector<TokenId>> prompts;
  /// Number of choices for each prompt.
  std::uint64_t n = 1;
  GenerationOptions options;
  /// The temperature is above 0, and several tokens may be chosen: without top_k or with another
  /// one than 1, as in vLLM.
  bool is_sampled = false;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;
  /// The answer begins with the prompt.
  bool echo = false;
  /// The name of the first tool that may be called; empty for none.
  std::string tool;
};

/// The object in a body. Throws ApiError 400.
nlohmann::json parse_body(std::string_view text);

/// Sets the knobs of one request: those of the member "oracle". Throws ApiError 400.
void apply_knobs(Knobs& knobs, const nlohmann::json& body);

/// Throws ApiError 404 for another model's name, 400 for any other error.
CompletionRequest parse_completion(Endpoint endpoint, const nlohmann::json& body,
                                   const ModelInfo& model, const Knobs& knobs);

/// Throws ApiError 404 for the name of another model, which is no adapter either.
void check_model(const nlohmann::json& body, const ModelInfo& model);

/// The tokens of a chat: each message as its role's token, its content and kEnd; then the token
/// that the answer follows. Throws ApiError 400.
std::vector<TokenId> encode_chat(const nlohmann::json& body, bool reasoning);

/// The member "prompt" as one prompt: text, after kBegin, or token ids. Throws ApiError 400.
std::vector<TokenId> encode_prompt(const nlohmann::json& prompt, bool add_special_tokens);
/// Token ids of this model. Throws ApiError 400.
std::vector<TokenId> read_tokens(const nlohmann::json& list, const char* parameter);
/// Throws ApiError 400 if it is neither missing nor true or false.
bool read_flag(const nlohmann::json& object, const char* key, bool missing);

}  // namespace fo::oracle
