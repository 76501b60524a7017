// The engine's HTTP API: OpenAI's text and chat completions, load, sleep, wake and health as in
// vLLM, and the pages of every daemon.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "http/pages.h"
#include "http/server.h"
#include "refengine/kv/kv_transfer.h"
#include "refengine/scheduler.h"

namespace fo::refengine {

struct ApiContext {
  ModelConfig config;
  std::string model_name;
  std::string version;
  std::int64_t created = 0;
  /// The capacity of the KV cache.
  std::uint32_t positions = 0;
  std::shared_ptr<Scheduler> scheduler;
  /// nullptr if KV caches are not moved.
  std::shared_ptr<KvTransfer> kv_transfer;
  /// Called for every token before it is sent.
  std::function<void()> on_token;
  http::IsReady is_ready;
};

/// While the engine is not awake, requests are answered with 503; /health and /ping always with
/// 200. `context` stays alive while requests run.
http::Handler make_api(std::shared_ptr<const ApiContext> context);

/// The limits of the API's server: a request that streams does not keep its turn of the model while
/// its client reads.
http::ServerLimits api_limits();

}  // namespace fo::refengine
