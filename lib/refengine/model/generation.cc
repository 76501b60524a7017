#include "refengine/model/generation.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"

namespace fo::refengine {

using base::Error;
using base::ExitStatus;

namespace {

bool contains(std::span<const TokenId> tokens, TokenId token) {
  return std::ranges::find(tokens, token) != tokens.end();
}

// Whether the last token of `word`, after `output`, would complete the word.
bool may_complete(std::span<const TokenId> word, std::span<const TokenId> output) {
  const std::span<const TokenId> begin = word.first(word.size() - 1);
  return output.size() >= begin.size() && std::ranges::equal(output.last(begin.size()), begin);
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

Generation::Generation(const ModelConfig& config, std::vector<TokenId> prompt,
                       GenerationOptions options, std::uint32_t positions)
    : options_(std::move(options)),
      eos_(config.eos),
      tokens_(std::move(prompt)),
      prompt_tokens_(tokens_.size()) {
  if (tokens_.empty()) throw Error(ExitStatus::kBadData, "the prompt is empty");
  for (const TokenId token : tokens_) {
    if (token >= config.vocab_size) {
      throw Error(ExitStatus::kBadData, "token " + std::to_string(token) +
                                            " is outside the vocabulary of " +
                                            std::to_string(config.vocab_size));
    }
  }
  const std::uint64_t room = positions - std::min<std::size_t>(prompt_tokens_, positions);
  // At least one: a prompt that fills the cache is an error, not an empty answer.
  const std::uint64_t max_tokens = options_.max_tokens.value_or(std::max<std::uint64_t>(room, 1));
  if (prompt_tokens_ > positions || max_tokens > room) {
    throw Error(ExitStatus::kBadData, std::to_string(prompt_tokens_) + " prompt tokens and " +
                                          std::to_string(max_tokens) +
                                          " new ones exceed the KV cache's " +
                                          std::to_string(positions) + " positions");
  }
  limit_ = prompt_tokens_ + static_cast<std::size_t>(max_tokens);
  const bool scores = options_.prompt_logprobs >= 0 && prompt_tokens_ > 1;
  finished_ = max_tokens == 0 && !scores;
}

Generation::Step Generation::next() const {
  const std::size_t count = std::min(tokens_.size() - fed_, kChunkTokens);
  Step step{std::span(tokens_).subspan(fed_, count), fed_,
            fed_ + count == tokens_.size() && limit_ > prompt_tokens_, options_.sampling};
  if (step.wants_token) step.constraints = constraints();
  if (options_.prompt_logprobs >= 0 && fed_ + 1 < prompt_tokens_) {
    step.targets = prompt().subspan(fed_ + 1).first(std::min(count, prompt_tokens_ - fed_ - 1));
    step.target_logprobs = static_cast<std::uint32_t>(options_.prompt_logprobs);
  }
  return step;
}

// As in vLLM, bad words are searched in the output only, and an eos is banned even if it would be
// ignored.
Constraints Generation::constraints() const {
  constexpr float kBanned = -std::numeric_limits<float>::infinity();
  Constraints all = options_.constraints;
  const auto ban = [&all](TokenId token) { all.biases.push_back({token, kBanned}); };
  if (output().size() < options_.min_tokens) {
    std::ranges::for_each(eos_, ban);
    std::ranges::for_each(options_.stop_tokens, ban);
  }
  for (const std::vector<TokenId>& word : options_.bad_words) {
    if (may_complete(word, output())) ban(word.back());
  }
  return all;
}

void Generation::accept(StepResult result) {
  fed_ += next().tokens.size();
  std::ranges::move(result.scores, std::back_inserter(scores_));
  if (result.token) return add(*std::move(result.token));
  finished_ = limit_ == prompt_tokens_ && fed_ == prompt_tokens_;
}

void Generation::add(TokenChoice choice) {
  last_ = std::move(choice);
  const TokenId token = last_.chosen.token;
  tokens_.push_back(token);
  const bool is_eos = !options_.ignore_eos && contains(eos_, token);
  const bool is_stop = contains(options_.stop_tokens, token);
  // The model chooses a banned token if no other one is left.
  if (output().size() > options_.min_tokens && (is_eos || is_stop)) {
    finished_ = true;
    reason_ = FinishReason::kStop;
    if (!is_eos) stop_token_ = token;
    return;
  }
  finished_ = tokens_.size() == limit_;
}

// The last token is always processed, because the next one follows from it.
void Generation::skip(std::size_t count) { fed_ = cached_ = std::min(count, prompt_tokens_ - 1); }

void Generation::rewind() {
  fed_ = cached_ = 0;
  scores_.clear();
}

}  // namespace fo::refengine
