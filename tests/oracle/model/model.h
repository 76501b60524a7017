// The oracle's model: the next token is a hash of all tokens before it, so the one right
// continuation of every prefix is known, and every engine with the same weights gives it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "oracle/model/vocabulary.h"

namespace fo::oracle {

/// Parameters that make two models different.
struct Weights {
  std::uint64_t seed = 0;
  /// The number of tokens between kThink in a prompt and the kEndThink of its answer.
  std::uint64_t thinking_tokens = 16;
};

/// The inputs that select a token, besides the tokens before it.
struct Selection {
  /// A digest of the parameters that change an engine's choice; 0 for plain greedy decoding. Other
  /// parameters give other tokens, so a client that loses one of them gets the wrong continuation.
  std::uint64_t sampling = 0;
  /// Tokens that are not chosen; the next best is.
  std::span<const TokenId> banned = {};
  /// If it is not empty, only these are chosen.
  std::span<const TokenId> allowed = {};
  /// Values that are added to the logits of some tokens; null for none. The best candidate has the
  /// logit 0, the second one -1.75, and so on; tokens that are no candidates have -20.
  const std::map<TokenId, double>* biases = nullptr;
};

struct ScoredToken {
  TokenId token = 0;
  double logprob = 0;
};

/// The model after some tokens.
class ModelState {
 public:
  explicit ModelState(const Weights& weights);
  void add(TokenId token);
  void add(std::span<const TokenId> tokens);

  [[nodiscard]] TokenId next(const Selection& selection) const;
  /// The `count` best tokens, the best one first; without their biases, as vLLM has it.
  [[nodiscard]] std::vector<ScoredToken> best(std::size_t count, const Selection& selection) const;
  /// The log-probability of any token.
  [[nodiscard]] double logprob(TokenId token, const Selection& selection) const;
  /// Whether a kThink was not followed by a kEndThink.
  [[nodiscard]] bool is_thinking() const { return is_thinking_; }

 private:
  [[nodiscard]] TokenId candidate(std::uint64_t rank, const Selection& selection) const;
  [[nodiscard]] TokenId next_with_biases(const Selection& selection) const;

  std::uint64_t hash_;
  std::uint64_t thinking_left_;
  bool is_thinking_ = false;
  /// An incomplete character at the end: its first byte, and how many bytes it has and needs.
  unsigned char lead_ = 0;
  int has_ = 0;
  int needs_ = 0;
};

/// The next `count` tokens after `prompt`, or those up to and including kEnd, which greedy decoding
/// without further parameters chooses.
std::vector<TokenId> continuation(std::span<const TokenId> prompt, std::size_t count,
                                  const Weights& weights = {});

}  // namespace fo::oracle
