#include "os/random.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace fo::os {
namespace {

// Up to 256 bytes, which come whole or not at all.
void fill(void* bytes, std::size_t size) {
  if (::getrandom(bytes, size, 0) < 0) base::throw_errno(errno, "read random bytes");
}

void append_hex(std::string& text, std::uint8_t byte) {
  constexpr std::string_view kHex = "0123456789abcdef";
  text += kHex[byte >> 4];
  text += kHex[byte & 15];
}

}  // namespace

std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  fill(&bits, sizeof bits);
  return bits;
}

std::string random_hex(std::size_t bytes) {
  std::vector<std::uint8_t> drawn(bytes);
  fill(drawn.data(), drawn.size());
  std::string text;
  for (const std::uint8_t byte : drawn) append_hex(text, byte);
  return text;
}

std::string make_uuid4() {
  std::array<std::uint8_t, 16> bytes{};
  fill(bytes.data(), bytes.size());
  bytes[6] = static_cast<std::uint8_t>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<std::uint8_t>((bytes[8] & 0x3f) | 0x80);
  std::string text;
  text.reserve(36);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    append_hex(text, bytes[i]);
  }
  return text;
}

}  // namespace fo::os
