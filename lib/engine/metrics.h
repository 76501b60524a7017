// The metrics of one engine in Prometheus' text format. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strong.h"
#include "base/units.h"
#include "engine/state.h"
#include "metrics/numbers.h"

namespace fo::engine {

/// The phases of a failover, in order.
enum class Phase { kLock, kGate, kRemap, kWake, kFirstToken, kRegister };
inline constexpr std::array kAllPhases{Phase::kLock, Phase::kGate,       Phase::kRemap,
                                       Phase::kWake, Phase::kFirstToken, Phase::kRegister};

/// "lock", "gate", "remap", "wake", "first_token", "register".
std::string_view phase_name(Phase phase);

/// Contains every series from the start; the transitions are those of next_state.
class Metrics {
 public:
  /// Begins in kInit. There is one fo_gms_connection_up series per device and tag, all down. `now`
  /// is in seconds since 1970.
  Metrics(std::string engine_id,
          const std::vector<std::pair<base::DeviceOrdinal, std::string>>& gms, double now);

  void enter(EngineState from, EngineState to, double now);
  void observe(Phase phase, base::Duration took);
  /// Replaces the previous value.
  void set_lock_wait(base::Duration waited);
  void set_generation(std::uint64_t generation);
  void set_gms_up(base::DeviceOrdinal device, const std::string& tag, bool up);

  /// The metrics in text format 0.0.4: HELP and TYPE for every family, escaped labels.
  [[nodiscard]] std::string text() const;

 private:
  static constexpr std::array<base::Duration, 16> kBounds{
      std::chrono::milliseconds(1),    std::chrono::microseconds(2500),
      std::chrono::milliseconds(5),    std::chrono::milliseconds(10),
      std::chrono::milliseconds(25),   std::chrono::milliseconds(50),
      std::chrono::milliseconds(100),  std::chrono::milliseconds(250),
      std::chrono::milliseconds(500),  std::chrono::seconds(1),
      std::chrono::milliseconds(2500), std::chrono::seconds(5),
      std::chrono::seconds(10),        std::chrono::seconds(30),
      std::chrono::minutes(1),         std::chrono::minutes(2)};

  std::string engine_id_;
  EngineState state_ = EngineState::kInit;
  double entered_;
  std::map<std::pair<EngineState, EngineState>, std::uint64_t> transitions_;
  std::array<metrics::Histogram<kBounds>, kAllPhases.size()> phases_;
  double lock_wait_ = 0;
  std::uint64_t generation_ = 0;
  std::map<std::pair<base::DeviceOrdinal, std::string>, bool> gms_up_;
};

}  // namespace fo::engine
