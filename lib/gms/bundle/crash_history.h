// Decides when a crashed server is restarted: at once the first time, then after growing pauses,
// and never after too many crashes. Pure: the time is an argument.
#pragma once

#include <deque>
#include <optional>

#include "base/deadline.h"
#include "base/units.h"

namespace fo::gms {

class CrashHistory {
 public:
  using TimePoint = base::Deadline::Clock::time_point;

  /// This many crashes within kWindow are too many.
  static constexpr std::size_t kTooMany = 6;
  static constexpr base::Duration kWindow = std::chrono::minutes(1);

  /// Adds a crash at `now`; returns the pause before the next start, nullopt after too many
  /// crashes.
  std::optional<base::Duration> add(TimePoint now);

 private:
  std::deque<TimePoint> crashes_;
};

}  // namespace fo::gms
