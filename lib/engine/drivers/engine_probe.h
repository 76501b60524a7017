// A probe of an engine's state: whether it is one of the expected states.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/state.h"
#include "os/probe.h"

namespace fo::engine {

struct EngineProbe : os::ProbeTimes {
  /// URL of the status page, in the syntax of net::parse_url.
  std::string url;
  /// The expected states; empty for any but kDead.
  std::vector<EngineState> states;
};

struct EngineProbeAnswer : os::ProbeAnswer {
  /// nullopt if there was no answer.
  std::optional<EngineState> state;
  /// The engine's id; empty if the answer has none.
  std::string id;
  /// When the engine entered the state, in seconds since 1970; 0 if the answer does not contain it.
  double since = 0;
};

/// Queries a StatusServer. An invalid or missing answer is a no; any other failure, such as missing
/// permissions or an invalid URL, throws Error.
EngineProbeAnswer probe_engine(const EngineProbe& probe);

std::string to_json(const EngineProbeAnswer& answer);

}  // namespace fo::engine
