// The OpenAI completions API as text: requests read and judged, answers spelled. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "refengine/generation.h"

namespace fo::refengine {

/// A request that can't be served, and the HTTP status that says so.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& what) : std::runtime_error(what), status_(status) {}
  [[nodiscard]] int status() const { return status_; }

 private:
  int status_;
};

struct CompletionRequest {
  std::vector<TokenId> prompt;
  std::uint64_t max_tokens = 16;
  bool stream = false;
  /// stream_options.include_usage: a last chunk with the counts.
  bool include_usage = false;
};

/// Reads the body of POST /v1/completions. Sampling parameters are ignored: decoding is greedy.
/// ApiError 404 for another model's name, 400 for everything else that is wrong or not supported
/// (several prompts or answers, echo, stop, suffix, logprobs).
CompletionRequest parse_completion(std::string_view body, const ModelConfig& config,
                                   const std::string& model_name);

/// What all pieces of one answer share.
struct CompletionHead {
  std::string id;
  std::string model;
  std::int64_t created = 0;
};

/// The whole answer. `finish` is "length", "stop" or "abort".
std::string format_completion(const CompletionHead& head, const Generation& generation,
                              std::string_view finish);
/// One server-sent event, "data: …\n\n"; `finish` empty: not yet.
std::string format_chunk(const CompletionHead& head, std::string_view text,
                         std::span<const TokenId> tokens, std::string_view finish);
/// The event with the counts.
std::string format_usage_chunk(const CompletionHead& head, const Generation& generation);

/// The answer to GET /v1/models.
std::string format_models(const std::string& model_name, std::int64_t created,
                          std::uint32_t positions);

}  // namespace fo::refengine
