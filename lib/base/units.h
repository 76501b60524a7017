// Durations ("500ms", "30s", "2m", "1h") and sizes ("4GiB", "512MiB", "4096") as text.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/strong.h"

namespace fo::base {

using Duration = std::chrono::nanoseconds;

/// A decimal number and a unit out of us, ms, s, m, h; a bare 0 needs none. Nothing else, no sign,
/// no spaces. nullopt: not a duration, or more than 100 years.
std::optional<Duration> parse_duration(std::string_view text);

/// A whole number, alone (bytes) or with KiB, MiB, GiB, TiB (1024) or KB, MB, GB, TB (1000), B.
/// nullopt: not a size, or over 2^63-1.
std::optional<ByteCount> parse_size(std::string_view text);

/// The shortest of the spellings that parse_duration reads back exactly, e.g. "1500ms".
std::string format_duration(Duration duration);

/// For people: "1.5 GiB", "512 MiB", "17 B".
std::string format_size(ByteCount size);

/// A non-negative decimal integer that fits and nothing else. nullopt otherwise.
std::optional<std::uint64_t> parse_uint(std::string_view text);

/// The id of a user or a group, as a number. nullopt for anything else: 2^32-1 means nobody.
std::optional<std::uint32_t> parse_id(std::string_view text);

}  // namespace fo::base
