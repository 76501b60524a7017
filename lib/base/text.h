// Words of messages: which characters may stand where (of UTF-8, the bytes beyond ASCII are
// neither), letters of either case, and how many there are of something.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace fo::base {

/// Nothing of it belongs in a line that is shown.
constexpr bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

/// The small letter for a capital one of ASCII, whatever the locale; any other character as it is.
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Whether `a` and `b` are equal once lower() is applied to each character.
inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

/// ASCII that prints, blanks apart: what can't end a line of a request's head early.
constexpr bool is_graphic(char c) { return c > ' ' && c < 0x7f; }

/// "1 allocation", "2 allocations", "2 hashes", "2 processes".
inline std::string counted(std::uint64_t count, std::string_view thing) {
  std::string text = std::to_string(count) + " " + std::string(thing);
  if (count != 1) text += thing.ends_with('s') || thing.ends_with("sh") ? "es" : "s";
  return text;
}

}  // namespace fo::base
