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
                       GenerationOptions options, std::uint32_t positions)
    : ends_(std::move(options.stop_tokens)),
      sampling_(options.sampling),
      tokens_(std::move(prompt)),
      prompt_tokens_(tokens_.size()) {
  if (!options.ignore_eos) ends_.insert(ends_.end(), config.eos.begin(), config.eos.end());
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
  const std::uint64_t max_tokens = options.max_tokens.value_or(std::max<std::uint64_t>(room, 1));
  if (prompt_tokens_ > positions || max_tokens > room) {
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
  return {std::span(tokens_).subspan(fed_, count), fed_, fed_ + count == tokens_.size(), sampling_};
}

void Generation::advance() { fed_ += next().tokens.size(); }

void Generation::accept(TokenChoice choice) {
  advance();
  last_ = std::move(choice);
  const TokenId token = last_.chosen.token;
  if (std::find(ends_.begin(), ends_.end(), token) != ends_.end()) {
    finished_ = true;
    reason_ = FinishReason::kStop;
    return;
  }
  tokens_.push_back(token);
  finished_ = tokens_.size() == limit_;
}

}  // namespace fo::refengine
