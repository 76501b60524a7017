// From logits to the next token: the likeliest one, or one drawn by chance that a seed repeats.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "refengine/model_config.h"

namespace fo::refengine {

/// How a request wants its tokens chosen. Travels to the last rank as it is.
struct Sampling {
  /// 0: the likeliest, always; then nothing else here but `logprobs` matters.
  double temperature = 0;
  /// Draw from the fewest tokens that have this share of the probability together; over 0.
  double top_p = 1;
  std::uint64_t seed = 0;
  /// How many of the likeliest tokens to tell with each one chosen; -1: no probabilities at all.
  std::int32_t logprobs = -1;
};

/// A token and the logarithm of its probability: of the model's own, whatever the temperature.
struct TokenLogprob {
  TokenId token;
  float logprob;
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

/// What the least likely tokens have, as OpenAI spells minus infinity.
inline constexpr float kMinLogprob = -9999.0f;

struct TokenChoice {
  /// Its logprob is 0 when none was wanted.
  TokenLogprob chosen{};
  /// The likeliest first; of equals, the lower id.
  std::vector<TokenLogprob> top;
};

/// The token for `position`, which counts from the first token of the prompt. What is drawn is a
/// function of the logits, `sampling` and `position`: the draw is output number `position` of
/// splitmix64 seeded with `sampling.seed`, its upper 53 bits as a number in [0, 1), which is looked
/// up in the distribution summed in the order of ids. Throws Error(kBadData) when no logit is a
/// number: the weights are damaged.
TokenChoice choose_token(std::span<const float> logits, const Sampling& sampling,
                         std::uint64_t position);

}  // namespace fo::refengine
