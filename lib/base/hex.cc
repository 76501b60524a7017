#include "base/hex.h"

#include "base/text.h"

namespace fo::base {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

int hex_value(char digit) {
  const char c = lower(digit);
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool is_hex(std::string_view text) { return text.find_first_not_of(kDigits) == text.npos; }

std::string uuid_text(std::span<const std::byte, 16> bytes) {
  std::string text = to_hex(bytes);
  for (const std::size_t at : {20U, 16U, 12U, 8U}) text.insert(at, 1, '-');
  return text;
}

}  // namespace fo::base
