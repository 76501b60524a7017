#include "os/file/random.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/hex.h"

namespace fo::os {
namespace {

// Up to 256 bytes, which getrandom(2) returns completely or not at all.
void fill(void* bytes, std::size_t size) {
  if (::getrandom(bytes, size, 0) < 0) base::throw_errno(errno, "read random bytes");
}

}  // namespace

std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  fill(&bits, sizeof bits);
  return bits;
}

double random_unit() {
  thread_local std::minstd_rand generator(
      static_cast<std::minstd_rand::result_type>(random_bits()));
  return std::generate_canonical<double, std::numeric_limits<double>::digits>(generator);
}

std::string random_hex(std::size_t bytes) {
  std::vector<std::byte> drawn(bytes);
  fill(drawn.data(), drawn.size());
  return base::to_hex(drawn);
}

std::string make_uuid4() {
  std::array<std::byte, 16> bytes{};
  fill(bytes.data(), bytes.size());
  bytes[6] = (bytes[6] & std::byte{0x0f}) | std::byte{0x40};
  bytes[8] = (bytes[8] & std::byte{0x3f}) | std::byte{0x80};
  return base::uuid_text(bytes);
}

}  // namespace fo::os
