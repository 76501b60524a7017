// Whether an engine's command and environment can work below fo-shadow: what vLLM, SGLang and
// Dynamo's workers need beside a GMS, as of August 2026. Only looks; a command that is a script is
// looked at word by word.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/drivers/driver.h"

namespace fo::engine {

struct Recipe {
  std::vector<std::string> command;
  EngineKind kind = EngineKind::kVllm;
  int sleep_level = 1;
  /// fo-shadow holds a lock for the engine.
  bool failover = true;
  /// The layout of a GMS is watched.
  bool has_gms = false;
  /// The kv_cache sockets that should be there and are not.
  std::vector<std::string> missing_kv_sockets;
  /// The value of a variable of the environment; "" where it is not set.
  std::function<std::string(const char*)> variable;
};

/// What an engine lacks that would have it fail, or wait without limit: one line each. Throws Error
/// (kUsage, or kConfig for a variable) for what can never work.
std::vector<std::string> check_recipe(const Recipe& recipe);

}  // namespace fo::engine
