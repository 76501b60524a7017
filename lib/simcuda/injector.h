// Fault injection: counts calls per function, and delays, fails, hangs or kills those that
// GMS_SIM_FAULTS and GMS_SIM_LATENCY name.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "simcuda/settings.h"

namespace fo::simcuda {

class Injector {
 public:
  Injector(const std::vector<Fault>& faults, const std::vector<Latency>& latencies);

  /// Call it at the start of every function, while no lock is held: it may sleep, never return,
  /// throw Failure, or end the process.
  void enter(std::string_view function);

  /// A function of the settings that `known` does not contain; empty if there is none.
  template <typename Known>
  [[nodiscard]] std::string find_unknown(const Known& known) const {
    for (const auto& [function, plan] : plans_) {
      if (!known(function)) return function;
    }
    return {};
  }

 private:
  struct Plan {
    std::uint64_t calls = 0;
    std::vector<Fault> faults;
    std::chrono::nanoseconds latency{};
  };

  std::mutex mutex_;  // guards Plan::calls; the map itself never changes
  std::map<std::string, Plan, std::less<>> plans_;
};

}  // namespace fo::simcuda
