// Points in time as text.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace fo::text {

using WallTime = std::chrono::system_clock::time_point;

/// Formats a time in UTC, cut to milliseconds: "2026-11-21T05:33:00.123Z".
std::string format_time(WallTime time);
/// Parses what format_time wrote; nullopt for anything else.
std::optional<WallTime> parse_time(std::string_view text);

}  // namespace fo::text
