#include "engine/metrics.h"

#include <utility>

#include "metrics/prometheus_text.h"

namespace fo::engine {

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, kAllPhases.size()> kNames{
      "lock", "gate", "remap", "wake", "first_token", "register"};
  return kNames[static_cast<std::size_t>(phase)];
}

Metrics::Metrics(std::string engine_id,
                 const std::vector<std::pair<base::DeviceOrdinal, std::string>>& gms, double now)
    : engine_id_(std::move(engine_id)), entered_(now) {
  for (const EngineState from : kAllStates) {
    for (const LifeEvent event : kAllEvents) {
      if (const auto to = next_state(from, event)) transitions_[{from, *to}] = 0;
    }
  }
  for (const auto& connection : gms) gms_up_[connection] = false;
}

void Metrics::enter(EngineState from, EngineState to, double now) {
  state_ = to;
  entered_ = now;
  ++transitions_[{from, to}];
}

void Metrics::observe(Phase phase, base::Duration took) {
  phases_[static_cast<std::size_t>(phase)].observe(took);
}

void Metrics::set_lock_wait(base::Duration waited) { lock_wait_ = base::seconds_of(waited); }

void Metrics::set_generation(std::uint64_t generation) { generation_ = generation; }

void Metrics::set_gms_up(base::DeviceOrdinal device, const std::string& tag, bool up) {
  gms_up_[{device, tag}] = up;
}

std::string Metrics::text() const {
  metrics::PrometheusText out;
  out.begin("fo_engine_state", "gauge", "Whether the engine is in this state.");
  for (const EngineState state : kAllStates) {
    out.add({{"engine_id", engine_id_}, {"state", state_name(state)}}, state == state_ ? 1 : 0);
  }
  out.add("fo_engine_state_entered_timestamp_seconds", "gauge",
          "When the engine entered its present state, in seconds since 1970.", entered_);
  out.begin("fo_engine_transitions_total", "counter", "Changes of the engine's state.");
  for (const auto& [pair, count] : transitions_) {
    out.add({{"from", state_name(pair.first)}, {"to", state_name(pair.second)}}, count);
  }
  out.begin("fo_failover_duration_seconds", "histogram",
            "How long each phase of becoming active took.");
  for (const Phase phase : kAllPhases) {
    out.add({{"phase", phase_name(phase)}}, phases_[static_cast<std::size_t>(phase)]);
  }
  out.add("fo_lock_wait_seconds", "gauge", "How long the last wait for the lock took.", lock_wait_);
  out.add("fo_lock_generation", "gauge", "Generation of the lock's last grant to this engine.",
          generation_);
  out.begin("fo_gms_connection_up", "gauge",
            "Whether the GPU memory server of this device and tag is connected.");
  for (const auto& [key, up] : gms_up_) {
    out.add({{"device", std::to_string(key.first.value())}, {"tag", key.second}}, up ? 1 : 0);
  }
  return out.take();
}

}  // namespace fo::engine
