#include "refengine/generation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace fo::refengine {

using base::Error;
using base::ExitStatus;

std::string_view finish_reason_name(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

Generation::Generation(const ModelConfig& config, std::vector<TokenId> prompt,
                       std::uint64_t max_tokens, std::uint32_t positions)
    : eos_(config.eos), tokens_(std::move(prompt)), prompt_tokens_(tokens_.size()) {
  if (tokens_.empty()) throw Error(ExitStatus::kBadData, "the prompt is empty");
  for (const TokenId token : tokens_) {
    if (token >= config.vocab_size) {
      throw Error(ExitStatus::kBadData, "token " + std::to_string(token) +
                                            " is outside the vocabulary of " +
                                            std::to_string(config.vocab_size));
    }
  }
  if (prompt_tokens_ > positions || max_tokens > positions - prompt_tokens_) {
    throw Error(ExitStatus::kBadData, std::to_string(prompt_tokens_) + " prompt tokens and " +
                                          std::to_string(max_tokens) +
                                          " new ones exceed the KV cache's " +
                                          std::to_string(positions) + " positions");
  }
  limit_ = prompt_tokens_ + static_cast<std::size_t>(max_tokens);
  finished_ = max_tokens == 0;
}

Generation::Step Generation::next() const {
  const std::size_t count = std::min(tokens_.size() - fed_, kChunkTokens);
  return {std::span(tokens_).subspan(fed_, count), fed_, fed_ + count == tokens_.size()};
}

void Generation::advance() { fed_ += next().tokens.size(); }

void Generation::accept(TokenId token) {
  advance();
  if (std::find(eos_.begin(), eos_.end(), token) != eos_.end()) {
    finished_ = true;
    reason_ = FinishReason::kStop;
    return;
  }
  tokens_.push_back(token);
  finished_ = tokens_.size() == limit_;
}

}  // namespace fo::refengine
