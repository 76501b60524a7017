// The units of time of this library. Pure.
#pragma once

#include <chrono>
#include <ratio>

namespace fo::plan {

using Seconds = std::chrono::duration<double>;
using Hours = std::chrono::duration<double, std::ratio<3600>>;
using Days = std::chrono::duration<double, std::ratio<86400>>;

inline constexpr Seconds kDay = Days(1);

/// The year of annual rates: 365 days.
inline constexpr Hours kYear{8760};

}  // namespace fo::plan
