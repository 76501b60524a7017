// UTF-8, character by character; and WTF-8, which is the same with surrogates: each one that is not
// a half of a pair has a code of three bytes. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace fo::base {

struct Character {
  char32_t code = 0;
  /// Length in bytes; 0 if the bytes are not valid UTF-8.
  std::size_t size = 0;
};

/// U+FFFD, which replaces bytes that are no character.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// The first character of `text`, which must not be empty.
Character first_character(std::string_view text);
/// The same of WTF-8, where it may be a surrogate.
Character first_wtf8_character(std::string_view text);

/// Whether a character begins with this byte of valid text.
inline bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80;
}
/// The number of characters in valid UTF-8 or WTF-8.
std::size_t count_characters(std::string_view text);

}  // namespace fo::base
