// What measuring programs share: contenders that take turns, so that whatever else the machine does
// meets all of them, and a table of what came out.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
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
  /// One run; how long it took, in seconds.
  std::function<double()> run;
  std::vector<double> seconds = {};
};

/// `runs` of each, in turns, after one of each that does not count.
inline void take_turns(std::vector<Contender>& contenders, std::size_t runs) {
  for (std::size_t turn = 0; turn <= runs; ++turn) {
    for (Contender& contender : contenders) {
      const double seconds = contender.run();
      if (turn > 0) contender.seconds.push_back(seconds);
    }
  }
}

/// Prints times multiplied by `scale`, in `unit`: the median, the least and the most, how far those
/// two are apart, and how many times the first contender's median it is.
inline void print_table(const std::string& title, const std::string& unit, double scale,
                        const std::vector<Contender>& contenders) {
  std::printf("%s, %s\n%-42s %10s %10s %10s %8s %8s\n", title.c_str(), unit.c_str(), "", "median",
              "least", "most", "spread", "x first");
  const double first = median(contenders.front().seconds);
  for (const Contender& contender : contenders) {
    const auto [least, most] =
        std::minmax_element(contender.seconds.begin(), contender.seconds.end());
    const double middle = median(contender.seconds);
    std::printf("%-42s %10.2f %10.2f %10.2f %7.0f%% %8.2f\n", contender.name.c_str(),
                middle * scale, *least * scale, *most * scale, (*most - *least) / middle * 100,
                middle / first);
  }
  std::printf("\n");
}

}  // namespace fo::bench
