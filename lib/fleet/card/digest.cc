#include "fleet/card/digest.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/hex.h"

namespace fo::fleet {
namespace {

constexpr std::size_t kDigits = 64;

}  // namespace

bool is_digest(std::string_view text) {
  return text.size() == kDigestPrefix.size() + kDigits && text.starts_with(kDigestPrefix) &&
         base::is_hex(text.substr(kDigestPrefix.size()));
}

std::string sha256_hex(std::string_view text) {
  gms::Sha256 hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.finish();
}

void FieldHash::add(std::string_view field) {
  std::array<std::byte, 8> length{};
  std::uint64_t rest = field.size();
  for (std::byte& byte : length) {
    byte = static_cast<std::byte>(rest & 0xff);
    rest >>= 8;
  }
  hash_.add(length);
  hash_.add(std::as_bytes(std::span(field)));
}

std::string FieldHash::finish() { return std::string(kDigestPrefix) + hash_.finish(); }

}  // namespace fo::fleet
