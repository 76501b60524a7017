// Lower-case hexadecimal digits, two for each byte. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace fo::base {

std::string to_hex(std::span<const std::byte> bytes);

/// Whether all characters of `text` are lower-case hexadecimal digits.
bool is_hex(std::string_view text);

/// The value of one hexadecimal digit of either case; -1 for any other character.
int hex_value(char digit);

/// The digits in groups of 8, 4, 4, 4 and 12.
std::string uuid_text(std::span<const std::byte, 16> bytes);

}  // namespace fo::base
