// Checks of the arguments of this library's functions. NaN is outside every range. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "plan/times.h"

namespace fo::plan {

/// The bounds of all arguments, so that products and quotients of a few of them are finite.
inline constexpr double kMinPositive = 1e-15;
inline constexpr double kMaxCount = 1e12;

/// Throws Error(kUsage), "NAME 'VALUE': expected MIN to MAX", unless `value` is in that range.
void check_range(std::string_view name, double value, double min, double max);

/// The same for a value above 0: kMinPositive to `max`.
void check_positive(std::string_view name, double value, double max = kMaxCount);

/// The same for a count: 1 to `max`.
void check_count(std::string_view name, std::uint64_t value, double max = kMaxCount);

/// The same for a time: `min` seconds to a day.
void check_time(std::string_view name, Seconds time, double min = kMinPositive);

}  // namespace fo::plan
