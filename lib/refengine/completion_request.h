// Parses the API's requests: OpenAI's text and chat completions, and vLLM's collective_rpc. Pure.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"
#include "refengine/generation.h"

namespace fo::refengine {

/// An invalid or unsupported request, with the HTTP status and the name of the parameter (may be
/// empty).
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
  /// stream_options.include_usage: the last chunk contains the counts.
  bool include_usage = false;
  bool return_token_ids = false;
};

/// Maximum size of a body: enough for some hundred thousand token ids.
inline constexpr base::ByteCount kMaxBodyBytes = 2 * base::kMiB;
inline constexpr std::size_t kMaxStops = 4;
inline constexpr std::size_t kMaxStopBytes = 256;
inline constexpr std::size_t kMaxStopTokens = 64;
inline constexpr std::size_t kMaxMessages = 1024;
/// Maximum number of parts of a message.
inline constexpr std::size_t kMaxParts = 64;

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
