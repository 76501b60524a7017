#include "engine/state.h"

namespace fo::engine {

std::optional<EngineState> next_state(EngineState from, LifeEvent event) {
  using enum EngineState;
  if (from == kDead) return std::nullopt;
  switch (event) {
    case LifeEvent::kReady:
      if (from == kInit) return kStandby;
      break;
    case LifeEvent::kGranted:
      if (from == kStandby) return kWaking;
      break;
    case LifeEvent::kServing:
      if (from == kWaking || from == kInit) return kActive;
      break;
    case LifeEvent::kHandedOver:
      if (from == kActive) return kStandby;
      break;
    case LifeEvent::kEnded:
      return kDead;
  }
  return std::nullopt;
}

std::string_view state_name(EngineState state) {
  constexpr std::array<std::string_view, kAllStates.size()> kNames{"init", "standby", "waking",
                                                                   "active", "dead"};
  return kNames[static_cast<std::size_t>(state)];
}

std::optional<EngineState> parse_state(std::string_view name) {
  for (const EngineState state : kAllStates) {
    if (state_name(state) == name) return state;
  }
  return std::nullopt;
}

}  // namespace fo::engine
