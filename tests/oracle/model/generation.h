// One choice of an answer, token by token, with the ends that vLLM has. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "oracle/model/model.h"
#include "oracle/model/output_text.h"

namespace fo::oracle {

struct GenerationOptions {
  std::uint64_t max_tokens = 16;
  /// Before these, no kEnd and no stop token is chosen, and no stop string counts.
  std::uint64_t min_tokens = 0;
  /// kEnd does not end the answer.
  bool ignore_end = false;
  std::vector<TokenId> stop_tokens = {};
  std::vector<std::string> stops = {};
  /// The text includes the stop string or the stop token that ends it.
  bool include_stop = false;
  SpecialTokens special = SpecialTokens::kSkipped;
  /// The same as Selection::sampling.
  std::uint64_t sampling = 0;
  std::vector<TokenId> banned = {};
  std::vector<TokenId> allowed = {};
  /// Values that are added to the logits of these tokens.
  std::map<TokenId, double> biases = {};
  /// The reduction of a token's logit for each time that it was generated, and for the first time.
  /// The prompt does not count, so that a continuation of the same tokens as a prompt is another
  /// one.
  double frequency_penalty = 0;
  double presence_penalty = 0;
  /// Tokens from this one on are wrong.
  std::uint64_t wrong_from = std::numeric_limits<std::uint64_t>::max();
  /// Number of the best tokens that are scored; -1 for none, not even the chosen one.
  int logprobs = -1;
  /// Each log-probability is off by up to this, as those of real engines are when the batch has
  /// another shape; `noise` selects by how much.
  double logprob_noise = 0;
  std::uint64_t noise = 0;
};

/// A token's part of an answer.
struct AnswerToken {
  TokenId token = 0;
  /// The text that became certain.
  std::string text = {};
  bool is_thinking = false;
  double logprob = 0;
  std::vector<ScoredToken> best = {};
};

class Generation {
 public:
  /// Nothing, the stop token or the stop string that ended the answer.
  using StopReason = std::variant<std::monostate, TokenId, std::string>;

  Generation(const Weights& weights, const std::vector<TokenId>& prompt, GenerationOptions options);

  /// The next token. Not when finished().
  AnswerToken next();

  [[nodiscard]] bool finished() const { return !finish_.empty(); }
  /// "stop" or "length"; empty while the answer continues.
  [[nodiscard]] const std::string& finish() const { return finish_; }
  [[nodiscard]] const StopReason& stop_reason() const { return stop_reason_; }
  [[nodiscard]] std::uint64_t tokens() const { return tokens_; }

 private:
  [[nodiscard]] Selection selection(const std::vector<TokenId>& banned) const;
  void penalize(TokenId token);
  void add_noise(TokenId token, double& logprob) const;
  /// Ends the answer if this token does. True if it is not part of the text.
  bool check_end(TokenId token);

  GenerationOptions options_;
  /// Tokens that are banned in the first min_tokens tokens.
  std::vector<TokenId> banned_early_;
  /// The biases of the options, less the penalties.
  std::map<TokenId, double> biases_;
  std::set<TokenId> penalized_;
  ModelState state_;
  OutputText text_;
  std::uint64_t tokens_ = 0;
  std::string finish_;
  StopReason stop_reason_;
};

}  // namespace fo::oracle
