// Durations ("500ms", "30s", "2m", "1h") and sizes ("4GiB", "512MiB", "4096") as text.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/strong.h"

namespace fo::base {

using Duration = std::chrono::nanoseconds;

/// A decimal number with a unit: us, ms, s, m or h; a bare 0 needs none. Signs and spaces are
/// invalid. nullopt if it is not a duration or is over 100 years.
std::optional<Duration> parse_duration(std::string_view text);

/// A whole number of bytes, optionally with KiB, MiB, GiB, TiB (1024), KB, MB, GB, TB (1000) or B.
/// nullopt if it is not a size or is over 2^63-1.
std::optional<ByteCount> parse_size(std::string_view text);

/// A whole number of the largest unit that divides `duration`, such as "1500ms"; a fraction of a
/// microsecond is cut off. parse_duration reads the text back.
std::string format_duration(Duration duration);

constexpr double seconds_of(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// Rounded for display: "1.5 GiB", "512 MiB", "17 B".
std::string format_size(ByteCount size);

/// A non-negative decimal integer that fits; nullopt for anything else.
std::optional<std::uint64_t> parse_uint(std::string_view text);

/// A decimal number, which may be infinite or NaN; nullopt for anything else.
std::optional<double> parse_number(std::string_view text);

/// A numeric user or group id; nullopt for anything else, and for 2^32-1, which means no id.
std::optional<std::uint32_t> parse_id(std::string_view text);

}  // namespace fo::base
