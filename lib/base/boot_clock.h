// Time since the machine was started, its sleep included: what a lease is measured by, which others
// count on while this machine is suspended.
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

/// Below zero for what is past.
inline Duration time_until(BootClock::time_point time) {
  return std::chrono::duration_cast<Duration>(time - BootClock::now());
}

}  // namespace fo::base
