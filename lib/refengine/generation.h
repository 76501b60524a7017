// The state of one completion: the model's next input, and whether it is finished. Independent of
// the model, of time and of connections.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "refengine/model_config.h"
#include "refengine/sampler.h"

namespace fo::refengine {

/// A prompt is processed in chunks of this many tokens, so that messages and buffers of a rank stay
/// small.
inline constexpr std::size_t kChunkTokens = 32;

enum class FinishReason { kLength, kStop };
/// "length", "stop".
std::string_view finish_reason_name(FinishReason reason);

struct GenerationOptions {
  /// nullopt: as many as fit into the KV cache.
  std::optional<std::uint64_t> max_tokens;
  /// Continue after the model's eos, which then is an ordinary token.
  bool ignore_eos = false;
  /// Tokens that end the completion, like an eos.
  std::vector<TokenId> stop_tokens;
  Sampling sampling;
};

class Generation {
 public:
  /// `positions` is the capacity of the KV cache. Throws Error(kBadData) for an empty prompt, a
  /// token outside the vocabulary, and if prompt and max_tokens together exceed `positions`.
  Generation(const ModelConfig& config, std::vector<TokenId> prompt, GenerationOptions options,
             std::uint32_t positions);

  struct Step {
    std::span<const TokenId> tokens;
    std::size_t position;
    /// The step produces the next token.
    bool wants_token;
    Sampling sampling;
  };
  /// The next input: a chunk of the prompt, or the last token. Not when finished().
  [[nodiscard]] Step next() const;
  /// The step is done and produced no token.
  void advance();
  /// The step is done and produced a token. A token that ends the completion is not part of the
  /// output.
  void accept(TokenChoice choice);
  /// The KV cache was lost: the next steps process everything so far again.
  void rewind() { fed_ = 0; }

  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] FinishReason reason() const { return reason_; }
  [[nodiscard]] std::span<const TokenId> prompt() const {
    return std::span(tokens_).first(prompt_tokens_);
  }
  [[nodiscard]] std::size_t prompt_tokens() const { return prompt_tokens_; }
  [[nodiscard]] std::span<const TokenId> output() const {
    return std::span(tokens_).subspan(prompt_tokens_);
  }
  /// The last accepted token.
  [[nodiscard]] const TokenChoice& last() const { return last_; }

 private:
  std::vector<TokenId> ends_;
  Sampling sampling_;
  std::vector<TokenId> tokens_;
  std::size_t prompt_tokens_;
  std::size_t limit_;
  std::size_t fed_ = 0;
  TokenChoice last_;
  bool finished_ = false;
  FinishReason reason_ = FinishReason::kLength;
};

}  // namespace fo::refengine
