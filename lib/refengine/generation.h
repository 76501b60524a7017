// One completion, token by token, as plain state: what the model is to be fed next, and when it
// is over. Knows no model, no time, no connection.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "refengine/model_config.h"
#include "refengine/sampler.h"

namespace fo::refengine {

/// A prompt is fed in pieces of this many tokens, so that a rank's messages and scratch stay small.
inline constexpr std::size_t kChunkTokens = 32;

enum class FinishReason { kLength, kStop };
/// "length", "stop".
std::string_view finish_reason_name(FinishReason reason);

struct GenerationOptions {
  /// nullopt: as many as the KV cache holds.
  std::optional<std::uint64_t> max_tokens;
  /// Go on after the model's eos, which is then a token like any other.
  bool ignore_eos = false;
  /// These end it as an eos does.
  std::vector<TokenId> stop_tokens;
  Sampling sampling;
};

class Generation {
 public:
  /// Throws Error(kBadData) for an empty prompt, a token outside the vocabulary, or when prompt and
  /// max_tokens together exceed `positions`, which is what the KV cache holds.
  Generation(const ModelConfig& config, std::vector<TokenId> prompt, GenerationOptions options,
             std::uint32_t positions);

  struct Step {
    std::span<const TokenId> tokens;
    std::size_t position;
    /// The model's next token is wanted after this step.
    bool wants_token;
    Sampling sampling;
  };
  /// What to feed now: a piece of the prompt, or the token accepted last. Not when finished().
  [[nodiscard]] Step next() const;
  /// The step was done and no token was wanted.
  void advance();
  /// The step was done and gave a token. One that ends it is not part of the output.
  void accept(TokenChoice choice);
  /// The KV cache was lost: everything so far is fed again before the next token.
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
  /// What was accepted last.
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
