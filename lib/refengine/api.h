// The engine's HTTP API: OpenAI's completions, text and chat, and load, sleep, wake and health as
// vLLM spells them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "http/server.h"
#include "refengine/scheduler.h"

namespace fo::refengine {

struct ApiContext {
  ModelConfig config;
  std::string model_name;
  std::string version;
  std::int64_t created = 0;
  /// What the KV cache holds.
  std::uint32_t positions = 0;
  std::shared_ptr<Scheduler> scheduler;
  /// Called with every token before it is sent.
  std::function<void()> on_token;
};

/// Requests while the engine is not awake are answered 503, /health and /ping always 200. Keeps
/// `context` alive while requests run.
http::Handler make_api(std::shared_ptr<const ApiContext> context);

}  // namespace fo::refengine
