// What the API is asked in JSON, read and judged: OpenAI's completions, text and chat, and vLLM's
// collective_rpc. Pure.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "refengine/generation.h"

namespace fo::refengine {

/// A request that can't be served, the HTTP status that says so, and the parameter that is to blame
/// (empty: none).
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& what, std::string parameter = {})
      : std::runtime_error(what), status_(status), parameter_(std::move(parameter)) {}
  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] const std::string& parameter() const { return parameter_; }

 private:
  int status_;
  std::string parameter_;
};

enum class Endpoint { kCompletions, kChat };

struct CompletionRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  std::vector<TokenId> prompt;
  GenerationOptions options;
  std::vector<std::string> stops;
  bool stream = false;
  /// stream_options.include_usage: a last chunk with the counts.
  bool include_usage = false;
  bool return_token_ids = false;
};

inline constexpr std::size_t kMaxStops = 4;
inline constexpr std::size_t kMaxStopBytes = 256;
inline constexpr std::size_t kMaxStopTokens = 64;
inline constexpr std::size_t kMaxMessages = 1024;
/// Of one message.
inline constexpr std::size_t kMaxParts = 64;

/// Reads the body of POST /v1/completions or /v1/chat/completions. Without a seed, `random_seed` is
/// the request's. Parameters that nobody knows are ignored, those that ask for what this engine
/// can't do are refused, unless their value asks for nothing. ApiError 404 for another model's
/// name, 400 for everything else that is wrong or not supported.
CompletionRequest parse_completion(Endpoint endpoint, std::string_view body,
                                   const ModelConfig& config, const std::string& model_name,
                                   std::uint64_t random_seed);

/// The method that the body of POST /collective_rpc names; empty where it names none. ApiError 400
/// for what is no JSON object.
std::string parse_rpc_method(std::string_view body);

}  // namespace fo::refengine
