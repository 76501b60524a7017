// UTF-8, character by character. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace fo::base {

struct Character {
  char32_t code = 0;
  /// In bytes; 0: here is no UTF-8.
  std::size_t size = 0;
};

/// At the front of a text that is not empty.
Character first_character(std::string_view text);

}  // namespace fo::base
