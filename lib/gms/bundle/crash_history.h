// When a server that crashed is started again: at once the first time, then later and later, and
// not at all when it goes on like that. Pure: time comes in.
#pragma once

#include <deque>
#include <optional>

#include "base/deadline.h"
#include "base/units.h"

namespace fo::gms {

class CrashHistory {
 public:
  using TimePoint = base::Deadline::Clock::time_point;

  /// So many crashes within this time are one too many.
  static constexpr std::size_t kTooMany = 6;
  static constexpr base::Duration kWindow = std::chrono::minutes(1);

  /// A crash at `now`: how long to wait before the next start, nullopt to give up.
  std::optional<base::Duration> add(TimePoint now);

 private:
  std::deque<TimePoint> crashes_;
};

}  // namespace fo::gms
