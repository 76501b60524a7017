#include "oracle/model/half_characters.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace fo::oracle {
namespace {

// No text has these: they are not characters (U+FFFE, U+FFFF).
constexpr std::string_view kLowMark = "\xEF\xBF\xBE";
constexpr std::string_view kHighMark = "\xEF\xBF\xBF";
// The size of a character that needs two escapes.
constexpr std::size_t kLongSize = 4;

// The last character of `text` if it is a long one; 0 otherwise.
char32_t last_long_character(std::string_view text) {
  if (text.size() < kLongSize) return 0;
  const base::Character last = base::first_character(text.substr(text.size() - kLongSize));
  return last.size == kLongSize ? last.code : 0;
}

void replace_mark(std::string& event, std::string_view mark, char32_t half) {
  const std::size_t at = event.find(mark);
  if (at == std::string::npos) return;
  event.replace(at, mark.size(), fmt::format("\\u{:04x}", static_cast<std::uint32_t>(half)));
}

}  // namespace

void HalfCharacters::split(ChoicePart& part) {
  low_ = high_ = 0;
  const bool has_thoughts = std::ranges::any_of(part.tokens, &AnswerToken::is_thinking);
  if (part.tokens.empty() || has_thoughts) return;
  low_ = std::exchange(next_low_, 0);
  if (low_ != 0) part.tokens.front().text.insert(0, kLowMark);
  std::string& text = part.tokens.back().text;
  const char32_t last = part.finish.empty() ? last_long_character(text) : 0;
  if (last == 0) return;
  constexpr char32_t kFirstLong = 0x10000;
  high_ = 0xD800 + ((last - kFirstLong) >> 10);
  next_low_ = 0xDC00 + ((last - kFirstLong) & 0x3FF);
  text.replace(text.size() - kLongSize, kLongSize, kHighMark);
}

std::string HalfCharacters::escape(std::string event) const {
  if (low_ != 0) replace_mark(event, kLowMark, low_);
  if (high_ != 0) replace_mark(event, kHighMark, high_);
  return event;
}

}  // namespace fo::oracle
