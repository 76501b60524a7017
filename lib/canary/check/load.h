// Reads an engine's load from its /metrics, and detects an engine that makes no progress. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/units.h"

namespace fo::canary {

/// nullopt where the engine has no such metric.
struct EngineLoad {
  /// Requests that run, and that wait.
  std::optional<double> running = {};
  std::optional<double> waiting = {};
  /// Tokens of prompts and answers since the start.
  std::optional<double> tokens = {};

  [[nodiscard]] bool is_busy() const { return running.value_or(0) > 0 || waiting.value_or(0) > 0; }
  /// True if the engine counts its requests and has none.
  [[nodiscard]] bool is_idle() const { return running && !is_busy(); }
  [[nodiscard]] bool has_queue() const { return waiting.value_or(0) > 0; }
};

/// The metrics of vLLM, SGLang and Dynamo, summed over their series.
EngineLoad read_engine_load(std::string_view text);

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
