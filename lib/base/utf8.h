// Decodes UTF-8 character by character. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace fo::base {

struct Character {
  char32_t code = 0;
  /// Length in bytes; 0 if the bytes are not valid UTF-8.
  std::size_t size = 0;
};

/// The first character of `text`, which must not be empty.
Character first_character(std::string_view text);

}  // namespace fo::base
