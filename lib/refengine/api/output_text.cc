#include "refengine/api/output_text.h"

#include <utility>

#include "base/utf8.h"

namespace fo::refengine {

OutputText::OutputText(Options options, std::span<const TokenId> prompt)
    : text_(std::move(options)) {
  for (const TokenId token : prompt) decode(token);
  characters_ = base::count_characters(pending_);
}

void OutputText::add(TokenId token) {
  const std::string text = decode(token);
  const std::size_t begun = characters_ + (decoder_.holds_back() ? 1 : 0);
  offset_ = token < kByteTokens ? begun - 1 : begun;
  text_.add(text);
}

void OutputText::add_hidden() { offset_ = characters_ + (decoder_.holds_back() ? 1 : 0); }

// Returns the text that is complete with this token. As in vLLM, an invalid byte looks like an
// incomplete character until a valid one follows, so that text always ends where a character does:
// a client can continue an answer after any piece of text.
std::string OutputText::decode(TokenId token) {
  const std::string text = decoder_.feed(token);
  characters_ += base::count_characters(text);
  pending_ += text;
  if (decoder_.holds_back() || pending_.ends_with(base::kReplacement)) return {};
  return std::exchange(pending_, {});
}

}  // namespace fo::refengine
