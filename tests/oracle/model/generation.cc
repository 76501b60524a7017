#include "oracle/model/generation.h"

#include <algorithm>
#include <utility>

#include "refengine/model/splitmix.h"

namespace fo::oracle {
namespace {

using refengine::splitmix;

constexpr std::uint64_t kWrong = 0x77726f6e67;

}  // namespace

Generation::Generation(const Weights& weights, const std::vector<TokenId>& prompt,
                       GenerationOptions options)
    : options_(std::move(options)),
      banned_early_(options_.banned),
      biases_(options_.biases),
      state_(weights),
      text_({options_.stops, options_.include_stop, options_.min_tokens, options_.special}) {
  banned_early_.insert(banned_early_.end(), options_.stop_tokens.begin(),
                       options_.stop_tokens.end());
  if (!options_.ignore_end) banned_early_.push_back(kEnd);
  state_.add(prompt);
}

Selection Generation::selection(const std::vector<TokenId>& banned) const {
  Selection wanted{options_.sampling, banned, options_.allowed, &biases_};
  if (tokens_ >= options_.wrong_from) wanted.sampling ^= kWrong;
  return wanted;
}

AnswerToken Generation::next() {
  const Selection wanted =
      selection(tokens_ < options_.min_tokens ? banned_early_ : options_.banned);
  AnswerToken answer{.token = state_.next(wanted), .is_thinking = state_.is_thinking()};
  if (options_.logprobs >= 0) {
    answer.logprob = state_.logprob(answer.token, wanted);
    answer.best = state_.best(static_cast<std::size_t>(options_.logprobs), wanted);
    add_noise(answer.token, answer.logprob);
    for (ScoredToken& one : answer.best) add_noise(one.token, one.logprob);
  }
  state_.add(answer.token);
  penalize(answer.token);
  ++tokens_;
  if (!check_end(answer.token)) text_.add(answer.token);
  if (text_.stop()) {
    finish_ = "stop";
    stop_reason_ = *text_.stop();
  }
  answer.text = text_.take(finished());
  return answer;
}

// The same for one token of an answer, whether it is the chosen one or one of the best.
void Generation::add_noise(TokenId token, double& logprob) const {
  if (options_.logprob_noise <= 0) return;
  const std::uint64_t bits = splitmix(options_.noise ^ (tokens_ << 32) ^ token);
  const double unit = 2 * static_cast<double>(bits >> 11) / static_cast<double>(1ULL << 53) - 1;
  logprob = std::min(logprob + options_.logprob_noise * unit, 0.0);
}

void Generation::penalize(TokenId token) {
  if (options_.frequency_penalty == 0 && options_.presence_penalty == 0) return;
  biases_[token] -= options_.frequency_penalty;
  if (penalized_.insert(token).second) biases_[token] -= options_.presence_penalty;
}

bool Generation::check_end(TokenId token) {
  const bool is_end = token == kEnd && !options_.ignore_end;
  const bool is_stop = std::ranges::find(options_.stop_tokens, token) != options_.stop_tokens.end();
  if (tokens_ >= options_.min_tokens && (is_end || is_stop)) {
    finish_ = "stop";
    if (!is_end) stop_reason_ = token;
    return !options_.include_stop;
  }
  if (tokens_ >= options_.max_tokens) finish_ = "length";
  return false;
}

}  // namespace fo::oracle
