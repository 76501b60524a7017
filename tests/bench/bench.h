// Common functions of the measuring programs: contenders run in turns, so that disturbances of the
// machine affect all of them. A Report gets the results.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace fo::bench {

inline double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct Contender {
  std::string name;
  /// Runs once; returns the time in seconds.
  std::function<double()> run;
  std::vector<double> seconds = {};
};

/// Runs each contender `runs` times, in turns, after one round that does not count.
inline void take_turns(std::vector<Contender>& contenders, std::size_t runs) {
  for (std::size_t turn = 0; turn <= runs; ++turn) {
    for (Contender& contender : contenders) {
      const double seconds = contender.run();
      if (turn > 0) contender.seconds.push_back(seconds);
    }
  }
}

}  // namespace fo::bench
