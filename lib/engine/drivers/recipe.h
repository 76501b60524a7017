// Checks whether an engine's command and environment can work under fo-shadow: what vLLM, SGLang
// and Dynamo's workers need with a GMS, as of August 2026. Does not run the command; the words of a
// script in it are checked, too.
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
  /// Whether fo-shadow holds a lock for the engine.
  bool failover = true;
  /// Whether fo-shadow watches the layout of a GMS.
  bool has_gms = false;
  /// The missing kv_cache sockets.
  std::vector<std::string> missing_kv_sockets;
  /// Returns the value of an environment variable; "" if it is not set.
  std::function<std::string(const char*)> variable;
};

/// The missing settings without which the engine would fail, or wait without limit: one line each.
/// Throws Error (kUsage, or kConfig for a variable) for a configuration that can never work.
std::vector<std::string> check_recipe(const Recipe& recipe);

}  // namespace fo::engine
