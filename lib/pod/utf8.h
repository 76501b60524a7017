// UTF-8, character by character. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace fo::pod {

struct Character {
  char32_t code = 0;
  /// In bytes; 0: here is no UTF-8.
  std::size_t size = 0;
};

/// At the front of a text that is not empty.
Character first_character(std::string_view text);

/// Whether every reader of YAML takes the character as it stands, and as no line break. Tabs and
/// newlines are not printable.
bool is_printable(char32_t code);

}  // namespace fo::pod
