#include "base/utf8.h"

#include <algorithm>
#include <array>

namespace fo::base {

Character first_wtf8_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xc2 || lead > 0xf4) return {};
  const std::size_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (text.size() < size) return {};
  char32_t code = lead & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0U) != 0x80) return {};
    code = code << 6U | (byte & 0x3fU);
  }
  constexpr std::array<char32_t, 5> kMin{0, 0, 0x80, 0x800, 0x10000};
  if (code < kMin[size] || code > 0x10ffff) return {};
  return {code, size};
}

Character first_character(std::string_view text) {
  const Character character = first_wtf8_character(text);
  const bool is_surrogate = character.code >= 0xd800 && character.code <= 0xdfff;
  return is_surrogate ? Character() : character;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

}  // namespace fo::base
