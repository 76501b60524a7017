// Chooses the next token from logits: the likeliest one, or a random one that a seed reproduces.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "refengine/model/model_config.h"

namespace fo::refengine {

/// The sampling parameters of a request, sent unchanged to the last rank.
struct Sampling {
  /// 0: always the likeliest token; then only `logprobs` matters.
  double temperature = 0;
  /// Draw from the smallest set of tokens with this total probability; above 0.
  double top_p = 1;
  std::uint64_t seed = 0;
  /// Number of the likeliest tokens that are reported with each chosen one; -1: no probabilities.
  std::int32_t logprobs = -1;
};

/// Added to a token's logit; minus infinity bans the token.
struct LogitBias {
  TokenId token;
  float bias;
};

/// The limits of a request on the choice of one token.
struct Constraints {
  std::vector<LogitBias> biases;
  /// Only these tokens are chosen; any if it is empty.
  std::vector<TokenId> allowed;
};

/// A token and the logarithm of its probability in the model, regardless of the temperature and of
/// constraints.
struct TokenLogprob {
  TokenId token;
  float logprob;
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

/// The value for the least likely tokens; OpenAI's spelling of minus infinity.
inline constexpr float kMinLogprob = -9999.0f;

struct TokenChoice {
  /// Its logprob is 0 unless requested.
  TokenLogprob chosen{};
  /// In descending order; of equal ones the lower id first.
  std::vector<TokenLogprob> top;
  /// Number of tokens that are at least as likely as the chosen one; 0 unless requested.
  std::uint32_t rank = 0;
};

/// The token for `position`, which counts from the first token of the prompt. The result depends
/// only on the logits, the constraints, `sampling` and `position`: output number `position` of
/// splitmix64 seeded with `sampling.seed`, with its upper 53 bits as a number in [0, 1), selects
/// from the distribution summed in the order of ids. If the constraints leave no token, it is token
/// 0. Throws Error(kBadData) if all logits are NaN: the weights are damaged.
TokenChoice choose_token(std::span<const float> logits, const Sampling& sampling,
                         const Constraints& constraints, std::uint64_t position);

/// The log-probability of a given token, with those of the `count` likeliest ones. Throws as
/// choose_token().
TokenChoice score_token(std::span<const float> logits, TokenId token, std::size_t count);

}  // namespace fo::refengine
