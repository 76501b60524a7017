// A probe of an engine's life: is it in one of these states?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "engine/state.h"

namespace fo::engine {

struct EngineProbe {
  /// Of the status page, as net::parse_url takes it.
  std::string url;
  /// Empty: any but kDead.
  std::vector<EngineState> states;
  /// From connect to the last byte.
  base::Duration timeout{};
  /// How long to go on asking. A server that was asked in time has its own time to answer.
  base::Duration wait{};
};

struct EngineProbeAnswer {
  bool yes = false;
  /// nullopt when nobody told.
  std::optional<EngineState> state;
  /// As the engine names itself; empty when it does not.
  std::string id;
  /// When it entered the state, in seconds since 1970; 0 when it does not say.
  double since = 0;
  /// For no: one line.
  std::string reason;
};

/// Asks a StatusServer. What is no answer is a no; anything else that fails, such as permissions or
/// a bad URL, throws Error.
EngineProbeAnswer probe_engine(const EngineProbe& probe);

std::string to_json(const EngineProbeAnswer& answer);

}  // namespace fo::engine
