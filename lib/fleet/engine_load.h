// The requests of an engine that run and wait, as its /metrics counts them. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace fo::fleet {

/// The load of an engine. A member is nullopt if the engine does not report it.
struct EngineLoad {
  /// The numbers of requests that run, and that wait.
  std::optional<double> running = {};
  std::optional<double> waiting = {};
  /// Tokens of prompts and answers since the start.
  std::optional<double> tokens = {};

  [[nodiscard]] bool is_busy() const { return running.value_or(0) > 0 || waiting.value_or(0) > 0; }
  /// True if the engine counts its requests and has none.
  [[nodiscard]] bool is_idle() const { return running && !is_busy(); }
  [[nodiscard]] bool has_queue() const { return waiting.value_or(0) > 0; }
};

/// Reads the metrics of vLLM and SGLang in Prometheus' text format; each is summed over its series.
EngineLoad read_engine_load(std::string_view text);

}  // namespace fo::fleet
