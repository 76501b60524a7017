#include "refengine/output_text.h"

#include <algorithm>
#include <utility>

namespace fo::refengine {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// Where the last `count` characters of `text` begin.
std::size_t last_characters(std::string_view text, std::size_t count) {
  std::size_t at = text.size();
  while (at > 0 && count > 0) {
    if (begins_character(text[--at])) --count;
  }
  return at;
}

}  // namespace

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

OutputText::OutputText(Options options, std::span<const TokenId> prompt)
    : options_(std::move(options)) {
  for (const TokenId token : prompt) decode(token);
  characters_ = count_characters(pending_);
  if (options_.include_stop) return;
  for (const std::string& stop : options_.stops) {
    held_characters_ = std::max(held_characters_, count_characters(stop) - 1);
  }
}

void OutputText::add(TokenId token) {
  ++tokens_;
  const std::string text = decode(token);
  text_ += text;
  const std::size_t begun = characters_ + (decoder_.holds_back() ? 1 : 0);
  offset_ = token < kByteTokens ? begun - 1 : begun;
  if (tokens_ > options_.min_tokens) find_stop(text.size());
}

void OutputText::add_hidden() {
  ++tokens_;
  offset_ = characters_ + (decoder_.holds_back() ? 1 : 0);
}

// Returns the text that is complete with this token. As in vLLM, an invalid byte looks like an
// incomplete character until a valid one follows, so that text always ends where a character does:
// a client can continue an answer after any piece of text.
std::string OutputText::decode(TokenId token) {
  const std::string text = decoder_.feed(token);
  characters_ += count_characters(text);
  pending_ += text;
  if (decoder_.holds_back() || pending_.ends_with(kReplacement)) return {};
  return std::exchange(pending_, {});
}

void OutputText::find_stop(std::size_t added) {
  if (added == 0) return;
  for (const std::string& stop : options_.stops) {
    const std::size_t window = std::min(text_.size(), added + stop.size() - 1);
    const std::size_t at = text_.find(stop, text_.size() - window);
    if (at == std::string::npos) continue;
    text_.resize(at + (options_.include_stop ? stop.size() : 0));
    stop_ = stop;
    return;
  }
}

std::string OutputText::take(bool is_finished) {
  const std::size_t end = is_finished ? text_.size() : last_characters(text_, held_characters_);
  if (end <= taken_) return {};
  const std::size_t begin = std::exchange(taken_, end);
  return text_.substr(begin, end - begin);
}

}  // namespace fo::refengine
