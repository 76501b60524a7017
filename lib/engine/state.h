// The states of one engine of a failover pair. Pure: no clock, no process, no lock.
//
//          kReady            kGranted           kServing
//   kInit ────────▶ kStandby ────────▶ kWaking ────────▶ kActive
//     │                ▲                                    │  ▲
//     │                └──────────── kHandedOver ───────────┘  │
//     └──────────────── kServing (without failover) ───────────┘
// kEnded leads from every state to kDead, which is final.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace fo::engine {

enum class EngineState { kInit, kStandby, kWaking, kActive, kDead };
inline constexpr std::array kAllStates{EngineState::kInit, EngineState::kStandby,
                                       EngineState::kWaking, EngineState::kActive,
                                       EngineState::kDead};

enum class LifeEvent {
  kReady,       // the engine was started and sleeps, or need not be started yet
  kGranted,     // the lock was granted
  kServing,     // the engine is awake, proven and registered
  kHandedOver,  // the engine sleeps again, and the lock was released on purpose
  kEnded,       // the engine has ended, for any reason
};
inline constexpr std::array kAllEvents{LifeEvent::kReady, LifeEvent::kGranted, LifeEvent::kServing,
                                       LifeEvent::kHandedOver, LifeEvent::kEnded};

/// The state after `event`; nullopt if the event is not valid in state `from`.
std::optional<EngineState> next_state(EngineState from, LifeEvent event);

/// "init", "standby", "waking", "active", "dead".
std::string_view state_name(EngineState state);
/// nullopt for any other word.
std::optional<EngineState> parse_state(std::string_view name);

}  // namespace fo::engine
