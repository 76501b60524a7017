// The metrics of one engine, and Prometheus' text format for them. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "engine/state.h"

namespace fo::engine {

/// The phases of a failover, in their order.
enum class Phase { kLock, kGate, kRemap, kWake, kRegister, kFirstToken };

std::string_view phase_name(Phase phase);

/// Every series is there from the start.
class Metrics {
 public:
  /// One fo_gms_connection_up series per device and tag. `now` in seconds since 1970.
  Metrics(std::string engine_id, std::vector<std::pair<int, std::string>> gms, double now);

  void enter(EngineState from, EngineState to, double now);
  void observe(Phase phase, base::Duration took);
  void set_lock_wait(base::Duration waited);
  void set_generation(std::uint64_t generation);
  void set_gms_up(int device, const std::string& tag, bool up);

  /// The exposition: text format 0.0.4, HELP and TYPE for every family, labels escaped.
  [[nodiscard]] std::string text() const;

 private:
  // To be designed by who implements it.
};

}  // namespace fo::engine
