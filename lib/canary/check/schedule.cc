#include "canary/check/schedule.h"

#include <algorithm>
#include <iterator>

namespace fo::canary {

std::string_view to_string(Step step) {
  constexpr std::array<std::string_view, kSteps.size()> kNames{"connect", "health", "progress",
                                                               "token", "content"};
  return kNames.at(static_cast<std::size_t>(step));
}

base::Duration Intervals::of(Step step) const {
  const std::array<base::Duration, kSteps.size()> all{connect, health, progress, token, content};
  return all.at(static_cast<std::size_t>(step));
}

Schedule::Schedule(const Intervals& intervals, base::Duration now, double phase)
    : intervals_(intervals) {
  for (const Step step : kSteps) {
    const std::chrono::duration<double> first = intervals_.of(step) * phase;
    due_.at(index(step)) = now + std::chrono::duration_cast<base::Duration>(first);
  }
}

base::Duration Schedule::next() const { return *std::min_element(due_.begin(), due_.end()); }

std::vector<Step> Schedule::due(base::Duration now) const {
  std::vector<Step> steps;
  std::ranges::copy_if(kSteps, std::back_inserter(steps),
                       [&](Step step) { return due_.at(index(step)) <= now; });
  return steps;
}

void Schedule::done(std::span<const Step> steps, base::Duration now) {
  for (const Step step : steps) {
    base::Duration& due = due_.at(index(step));
    const base::Duration interval = intervals_.of(step);
    due += interval * ((now - due) / interval + 1);
  }
}

void Schedule::hurry(base::Duration now) {
  base::Duration& due = due_.at(index(Step::kContent));
  due = std::min(due, now + std::min(intervals_.content_of_suspect, intervals_.content));
}

}  // namespace fo::canary
