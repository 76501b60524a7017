// The state of one completion: the model's next input, and whether it is finished. Independent of
// the model, of time and of connections.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "refengine/model/model_config.h"
#include "refengine/model/sampler.h"

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
  /// None of this many first tokens is a stop token or an eos, even an ignored one.
  std::uint64_t min_tokens = 0;
  /// Sequences that the output must not contain.
  std::vector<std::vector<TokenId>> bad_words;
  /// Constraints of each token.
  Constraints constraints;
  Sampling sampling;
  /// Number of the likeliest tokens that are reported with the probability of each prompt token;
  /// -1: no probabilities.
  std::int32_t prompt_logprobs = -1;
};

/// The result of one step of the model.
struct StepResult {
  /// A score for each of Step::targets.
  std::vector<TokenChoice> scores;
  /// If Step::wants_token.
  std::optional<TokenChoice> token;
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
    Constraints constraints = {};
    /// Tokens of the prompt whose probabilities the step produces: the first one follows the first
    /// of `tokens`, and so on.
    std::span<const TokenId> targets = {};
    /// Number of the likeliest tokens that are reported with each of them.
    std::uint32_t target_logprobs = 0;
  };
  /// The next input: a chunk of the prompt, or the last token. Must not be called when finished().
  [[nodiscard]] Step next() const;
  /// Applies the result of the step that next() returned.
  void accept(StepResult result);
  /// The KV cache already has the first `count` tokens of the prompt. To be called before the first
  /// step, and not with prompt_logprobs.
  void skip(std::size_t count);
  /// The number of prompt tokens that skip() left out.
  [[nodiscard]] std::size_t cached_tokens() const { return cached_; }
  /// The number of tokens that the KV cache has.
  [[nodiscard]] std::size_t computed_tokens() const { return fed_; }
  /// The KV cache was lost: the next steps process everything so far again.
  void rewind();

  [[nodiscard]] const GenerationOptions& options() const { return options_; }
  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] FinishReason reason() const { return reason_; }
  /// The stop token that ended it; nullopt for an eos.
  [[nodiscard]] std::optional<TokenId> stop_token() const { return stop_token_; }
  /// The prompt and the output.
  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const TokenId> prompt() const {
    return std::span(tokens_).first(prompt_tokens_);
  }
  [[nodiscard]] std::size_t prompt_tokens() const { return prompt_tokens_; }
  /// Maximum size of the output.
  [[nodiscard]] std::size_t max_tokens() const { return limit_ - prompt_tokens_; }
  /// All tokens up to and including the one that ended it.
  [[nodiscard]] std::span<const TokenId> output() const {
    return std::span(tokens_).subspan(prompt_tokens_);
  }
  /// The last accepted token.
  [[nodiscard]] const TokenChoice& last() const { return last_; }
  /// The probabilities of the prompt's tokens from the second one on, as far as they are known.
  [[nodiscard]] const std::vector<TokenChoice>& prompt_scores() const { return scores_; }

 private:
  [[nodiscard]] Constraints constraints() const;
  void add(TokenChoice choice);

  GenerationOptions options_;
  std::vector<TokenId> eos_;
  std::vector<TokenId> tokens_;
  std::size_t prompt_tokens_;
  std::size_t limit_;
  std::size_t fed_ = 0;
  std::size_t cached_ = 0;
  std::vector<TokenChoice> scores_;
  TokenChoice last_;
  std::optional<TokenId> stop_token_;
  bool finished_ = false;
  FinishReason reason_ = FinishReason::kLength;
};

}  // namespace fo::refengine
