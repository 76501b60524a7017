// Random numbers and identifiers, from getrandom(2); random_unit() only takes its seed from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fo::os {

/// 64 random bits.
std::uint64_t random_bits();

/// A random number, uniform in [0, 1), for decisions and pauses, not for secrets. getrandom(2)
/// seeds a generator for each thread once; after that, a call makes no system call.
double random_unit();

/// `bytes` (at most 256) random bytes as lower-case hexadecimal digits.
std::string random_hex(std::size_t bytes);

/// A random (version 4) UUID in its 36-character lower-case text form.
std::string make_uuid4();

}  // namespace fo::os
