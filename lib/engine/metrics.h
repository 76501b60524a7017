// The metrics of one engine, and Prometheus' text format for them. Pure.
#pragma once

#include <array>
#include <cstddef>
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
enum class Phase { kLock, kGate, kRemap, kWake, kFirstToken, kRegister };
inline constexpr std::array kAllPhases{Phase::kLock, Phase::kGate,       Phase::kRemap,
                                       Phase::kWake, Phase::kFirstToken, Phase::kRegister};

/// "lock", "gate", "remap", "wake", "first_token", "register".
std::string_view phase_name(Phase phase);

/// Every series is there from the start: of the transitions those that next_state knows.
class Metrics {
 public:
  /// The engine is in kInit. One fo_gms_connection_up series per device and tag, all down. `now` in
  /// seconds since 1970.
  Metrics(std::string engine_id, const std::vector<std::pair<int, std::string>>& gms, double now);

  void enter(EngineState from, EngineState to, double now);
  void observe(Phase phase, base::Duration took);
  /// The latest one counts.
  void set_lock_wait(base::Duration waited);
  void set_generation(std::uint64_t generation);
  void set_gms_up(int device, const std::string& tag, bool up);

  /// The exposition: text format 0.0.4, HELP and TYPE for every family, labels escaped.
  [[nodiscard]] std::string text() const;

 private:
  /// Upper bounds in seconds; one more bucket takes the rest.
  static constexpr std::array kBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                      0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0, 120.0};
  struct Histogram {
    std::array<std::uint64_t, kBounds.size() + 1> counts{};
    double sum = 0;
  };

  std::string engine_id_;
  EngineState state_ = EngineState::kInit;
  double entered_;
  std::map<std::pair<EngineState, EngineState>, std::uint64_t> transitions_;
  std::array<Histogram, kAllPhases.size()> phases_;
  double lock_wait_ = 0;
  std::uint64_t generation_ = 0;
  std::map<std::pair<int, std::string>, bool> gms_up_;
};

}  // namespace fo::engine
