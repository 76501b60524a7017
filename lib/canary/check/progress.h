// Detects an engine that makes no progress from its counters. Pure.
#pragma once

#include <optional>
#include <string>

#include "base/units.h"
#include "fleet/engine_load.h"

namespace fo::canary {

using fleet::EngineLoad;

/// The result of comparing an engine's counters with the previous ones.
struct Progress {
  /// Requests run, and the engine counts its tokens.
  bool is_running = false;
  /// Requests also ran at the previous reading, and the engine has produced a token since.
  bool has_moved = false;
  /// The time for which requests have run without a token.
  base::Duration silent{};

  [[nodiscard]] bool is_hung(base::Duration after) const { return is_running && silent >= after; }
  /// Returns the reason why the engine is hung.
  [[nodiscard]] std::string reason() const;
};

/// An engine is hung if requests run and its count of tokens has not changed for a time.
class ProgressWatch {
 public:
  Progress update(const EngineLoad& load, base::Duration now);
  /// Forgets the last counters. To be called if the engine may be another process, or its counters
  /// could not be read.
  void reset() { last_.reset(); }

 private:
  struct Seen {
    double tokens;
    base::Duration since;
  };
  std::optional<Seen> last_;
};

}  // namespace fo::canary
