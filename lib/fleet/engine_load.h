// The requests of an engine that run and wait, as its /metrics counts them. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace fo::fleet {

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

}  // namespace fo::fleet
