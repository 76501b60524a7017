// Decodes UTF-8 one character at a time, and WTF-8: UTF-8 that may contain lone surrogates, each
// encoded in three bytes. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace fo::base {

struct Character {
  char32_t code = 0;
  /// Length in bytes; 0 if the bytes are not valid UTF-8.
  std::size_t size = 0;
};

/// U+FFFD, the character that replaces invalid bytes.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// The first character of `text`, which must not be empty.
Character first_character(std::string_view text);
/// The first character of WTF-8, which must not be empty; it may be a surrogate.
Character first_wtf8_character(std::string_view text);

/// Whether `byte` of a valid text is the first byte of a character.
inline bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80;
}
/// The number of characters in valid UTF-8 or WTF-8.
std::size_t count_characters(std::string_view text);

}  // namespace fo::base
