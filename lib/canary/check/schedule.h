// The times at which the checks of one worker are due. Pure; time is an argument, and does not
// decrease.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace fo::canary {

/// In the order of cost.
enum class Step { kConnect, kHealth, kProgress, kToken, kContent };
inline constexpr std::array kSteps{Step::kConnect, Step::kHealth, Step::kProgress, Step::kToken,
                                   Step::kContent};
std::string_view to_string(Step step);

struct Intervals {
  base::Duration connect = std::chrono::seconds(2);
  base::Duration health = std::chrono::seconds(5);
  base::Duration progress = std::chrono::seconds(5);
  base::Duration token = std::chrono::seconds(10);
  base::Duration content = std::chrono::seconds(30);
  /// Interval of content checks of a suspected worker, if it is shorter.
  base::Duration content_of_suspect = std::chrono::seconds(5);

  [[nodiscard]] base::Duration of(Step step) const;
};

class Schedule {
 public:
  /// `phase`, from 0 to 1, is the part of each interval after which the first check is due.
  Schedule(const Intervals& intervals, base::Duration now, double phase);

  /// The time when the next check is due.
  [[nodiscard]] base::Duration next() const;
  /// The steps that are due, in the order of cost: those with which a check begins.
  [[nodiscard]] std::vector<Step> due(base::Duration now) const;
  /// Ends a check that began with `steps`, whether each was done or left out. Each is next due a
  /// whole number of intervals after it was last due, so that its phase is kept and missed checks
  /// are not repeated. Other steps, which may have become due during the check, are unchanged.
  void done(std::span<const Step> steps, base::Duration now);
  /// Makes the content due soon, because the worker is suspected.
  void hurry(base::Duration now);

 private:
  static std::size_t index(Step step) { return static_cast<std::size_t>(step); }

  Intervals intervals_;
  std::array<base::Duration, kSteps.size()> due_{};
};

}  // namespace fo::canary
