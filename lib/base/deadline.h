// A point in time until which something may wait. Every wait in this project takes one.
#pragma once

#include <chrono>
#include <optional>

#include "base/units.h"

namespace fo::base {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// Never expires.
  static Deadline never() { return Deadline(std::nullopt); }
  /// Expires `duration` from now; at once if that is zero or negative; in 100 years at the latest.
  static Deadline after(Duration duration);
  template <typename Rep, typename Period>
  static Deadline after(std::chrono::duration<Rep, Period> duration) {
    return after(Duration(duration));
  }
  /// after(*duration), or never.
  static Deadline after(std::optional<Duration> duration) {
    return duration ? after(*duration) : never();
  }

  [[nodiscard]] bool is_never() const { return !at_; }
  [[nodiscard]] bool expired() const { return at_ && Clock::now() >= *at_; }
  /// The remaining time, at least zero; nullopt for never.
  [[nodiscard]] std::optional<Duration> remaining() const;
  /// For poll(2): milliseconds rounded up, -1 for never.
  [[nodiscard]] int poll_timeout() const;
  [[nodiscard]] std::optional<Clock::time_point> at() const { return at_; }
  /// The earlier of the two.
  [[nodiscard]] Deadline sooner(const Deadline& other) const;

 private:
  explicit Deadline(std::optional<Clock::time_point> at) : at_(at) {}
  std::optional<Clock::time_point> at_;
};

}  // namespace fo::base
