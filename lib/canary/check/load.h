// What an engine's /metrics say of its load, and whether it makes progress. Pure.
#pragma once

#include <optional>
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
  /// Not busy, as far as the engine counts its requests: without that nothing is known.
  [[nodiscard]] bool is_idle() const { return running && !is_busy(); }
  [[nodiscard]] bool has_queue() const { return waiting.value_or(0) > 0; }
};

/// The metrics of vLLM, SGLang and Dynamo, summed over their series.
EngineLoad read_engine_load(std::string_view metrics);

/// An engine is hung if requests run and none of its tokens has moved for a time.
class ProgressWatch {
 public:
  /// How long requests have run without a token, as far as is known: zero if they do not.
  base::Duration update(const EngineLoad& load, base::Duration now);
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
