#include "oracle/output_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace fo::oracle {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

// Where the last `count` characters of `text` begin.
std::size_t last_characters(std::string_view text, std::size_t count) {
  std::size_t at = text.size();
  while (at > 0 && count > 0) {
    if (begins_character(text[--at])) --count;
  }
  return at;
}

}  // namespace

OutputText::OutputText(Options options) : options_(std::move(options)) {
  if (options_.include_stop) return;
  for (const std::string& stop : options_.stops) {
    held_characters_ = std::max(held_characters_, count_characters(stop) - 1);
  }
}

void OutputText::add(TokenId token) {
  ++tokens_;
  if (options_.special == SpecialTokens::kShown || !is_special(token)) pending_ += bytes_of(token);
  const std::string decoded = valid_text(pending_);
  // An invalid byte looks like an incomplete character until a valid one follows.
  if (decoded.ends_with(kReplacement)) return;
  pending_.clear();
  text_ += decoded;
  if (tokens_ > options_.min_tokens) find_stop(decoded.size());
}

void OutputText::find_stop(std::size_t added) {
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

}  // namespace fo::oracle
