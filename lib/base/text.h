// Helpers for the text of messages: character classes (bytes beyond ASCII belong to none), texts
// without control characters, comparison without case, and counts of things.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fo::base {

/// An ASCII control character, which must not be printed.
constexpr bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

/// The lower-case letter for an upper-case ASCII letter; any other character unchanged. Ignores the
/// locale.
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Whether `a` and `b` are equal once lower() is applied to each character.
inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

/// Whether all characters are printable ASCII and none is a space. A text of these characters
/// cannot end a line of a request's head early.
constexpr bool is_graphic(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

/// A peer's text for one line of output: its control characters are removed.
inline std::string without_controls(std::string text) {
  std::erase_if(text, is_control);
  return text;
}

/// A peer's text for a message: at most `max_bytes` of it, on one line, with blanks in place of its
/// control characters, and without blanks at the end.
inline std::string one_line(std::string_view text, std::size_t max_bytes = std::string_view::npos) {
  std::string line(text.substr(0, max_bytes));
  std::replace_if(line.begin(), line.end(), is_control, ' ');
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

/// "1 allocation", "2 allocations", "2 hashes", "2 processes".
inline std::string counted(std::uint64_t count, std::string_view thing) {
  std::string text = std::to_string(count) + " " + std::string(thing);
  if (count != 1) text += thing.ends_with('s') || thing.ends_with("sh") ? "es" : "s";
  return text;
}

}  // namespace fo::base
