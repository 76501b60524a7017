#include "base/deadline.h"

#include <algorithm>
#include <limits>

namespace fo::base {

Deadline Deadline::after(Duration duration) {
  // Longer than any wait, and short enough not to overflow the clock.
  constexpr Duration kMax = std::chrono::years(100);
  return Deadline(Clock::now() + std::clamp(duration, Duration::zero(), kMax));
}

std::optional<Duration> Deadline::remaining() const {
  if (!at_) return std::nullopt;
  return std::max(Duration(*at_ - Clock::now()), Duration::zero());
}

int Deadline::poll_timeout() const {
  const std::optional<Duration> left = remaining();
  if (!left) return -1;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(*left).count();
  return static_cast<int>(std::min<std::int64_t>(ms, std::numeric_limits<int>::max()));
}

Deadline Deadline::sooner(const Deadline& other) const {
  if (!at_) return other;
  if (!other.at_) return *this;
  return *at_ <= *other.at_ ? *this : other;
}

}  // namespace fo::base
