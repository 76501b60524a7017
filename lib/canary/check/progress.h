// Detects an engine that makes no progress from its counters. Pure.
#pragma once

#include <optional>
#include <string>

#include "base/units.h"
#include "fleet/engine_load.h"

namespace fo::canary {

using fleet::EngineLoad;

/// The result of two looks at an engine's counters.
struct Progress {
  /// Requests run, and the engine counts its tokens.
  bool is_running = false;
  /// Requests ran at the last look, too, and a token has come since.
  bool has_moved = false;
  /// The time for which requests have run without a token.
  base::Duration silent{};

  [[nodiscard]] bool is_hung(base::Duration after) const { return is_running && silent >= after; }
  /// Returns the reason why the engine is hung.
  [[nodiscard]] std::string reason() const;
};

/// An engine is hung if requests run and none of its tokens has moved for a time.
class ProgressWatch {
 public:
  Progress update(const EngineLoad& load, base::Duration now);
  /// The engine is another process, or could not be read.
  void reset() { last_.reset(); }

 private:
  struct Seen {
    double tokens;
    base::Duration since;
  };
  std::optional<Seen> last_;
};

}  // namespace fo::canary
