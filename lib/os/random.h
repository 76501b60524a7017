// Random numbers and identifiers, from getrandom(2).
#pragma once

#include <cstdint>
#include <string>

namespace fo::os {

/// 64 random bits.
std::uint64_t random_bits();

/// A random (version 4) UUID in its 36-character lower-case text form.
std::string make_uuid4();

}  // namespace fo::os
