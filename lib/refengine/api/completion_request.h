// Parses the API's requests for tokens, OpenAI's text and chat completions with vLLM's additions,
// and vLLM's collective_rpc. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "refengine/api/output_text.h"
#include "refengine/api/request_fields.h"
#include "refengine/model/generation.h"

namespace fo::refengine {

enum class Endpoint { kCompletions, kChat };

struct CompletionRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  std::vector<TokenId> prompt;
  GenerationOptions options;
  OutputText::Options text;
  /// The answer begins with the prompt.
  bool echo = false;
  bool stream = false;
  /// stream_options.include_usage: the last chunk contains the counts.
  bool include_usage = false;
  /// stream_options.continuous_usage_stats: so does each chunk.
  bool continuous_usage = false;
  bool return_token_ids = false;
  /// kv_transfer_params.fo_snapshot: the id of the prompt's KV cache.
  std::optional<std::string> snapshot = {};
};

inline constexpr std::size_t kMaxStops = 4;
inline constexpr std::size_t kMaxStopBytes = 256;
inline constexpr std::size_t kMaxStopTokens = 64;
inline constexpr std::size_t kMaxBadWords = 64;
/// Maximum number of likeliest tokens to report with each token, as in vLLM.
inline constexpr std::size_t kMaxLogprobs = 20;

/// Parses the body of POST /v1/completions or /v1/chat/completions. `random_seed` replaces a
/// missing seed. Unknown parameters are ignored; unsupported ones are refused unless they have a
/// neutral value. Throws ApiError 404 for another model's name, 400 for any other error.
CompletionRequest parse_completion(Endpoint endpoint, std::string_view body,
                                   const ModelConfig& config, const std::string& model_name,
                                   std::uint64_t random_seed);

/// The method in the body of POST /collective_rpc; empty if there is none. Throws ApiError 400 if
/// it is not a JSON object.
std::string parse_rpc_method(std::string_view body);

}  // namespace fo::refengine
