// Words of messages: which characters may stand where (of UTF-8, the bytes beyond ASCII are
// neither), and how many there are of something.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fo::base {

/// Nothing of it belongs in a line that is shown.
constexpr bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

/// Of ASCII alone, whatever the locale.
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// ASCII that prints, blanks apart: what can't end a line of a request's head early.
constexpr bool is_graphic(char c) { return c > ' ' && c < 0x7f; }

/// "1 allocation", "2 allocations", "2 hashes", "2 processes".
inline std::string counted(std::uint64_t count, std::string_view thing) {
  std::string text = std::to_string(count) + " " + std::string(thing);
  if (count != 1) text += thing.ends_with('s') || thing.ends_with("sh") ? "es" : "s";
  return text;
}

}  // namespace fo::base
