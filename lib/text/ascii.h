// Letters, digits and words of ASCII, whatever the locale. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/text.h"

namespace fo::text {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

constexpr bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

constexpr bool is_letter(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z'); }

constexpr bool is_letter_or_digit(char c) { return is_letter(c) || is_digit(c); }

using base::lower;

inline std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return base::lower(c); });
  return out;
}

template <std::size_t kSize>
bool is_one_of(std::string_view word, const std::array<std::string_view, kSize>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace fo::text
