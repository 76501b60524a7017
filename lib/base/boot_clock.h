// Time since the machine booted, including time in suspend. Leases are measured by it, because
// other machines keep counting while this one is suspended.
#pragma once

#include <chrono>
#include <ctime>

#include "base/units.h"

namespace fo::base {

struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept {
    std::timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

/// The time from now until `time`; negative if `time` is in the past.
inline Duration time_until(BootClock::time_point time) {
  return std::chrono::duration_cast<Duration>(time - BootClock::now());
}

}  // namespace fo::base
