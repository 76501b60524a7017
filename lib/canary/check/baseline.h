// The usual duration of a worker's checks: a moving average over those that passed. Pure.
#pragma once

#include <cstdint>

namespace fo::canary {

struct Baseline {
  /// The weight of the newest value.
  static constexpr double kAlpha = 0.1;
  /// With fewer values, is_exceeded() is false.
  static constexpr std::uint64_t kMinCount = 3;

  double average = 0;
  std::uint64_t count = 0;

  /// Values below 0 are ignored.
  void add(double value) {
    if (!(value >= 0)) return;
    average = count == 0 ? value : kAlpha * value + (1 - kAlpha) * average;
    ++count;
  }
  /// Whether `value` is over `factor` times the average.
  [[nodiscard]] bool is_exceeded(double value, double factor) const {
    return count >= kMinCount && value > factor * average;
  }
};

}  // namespace fo::canary
