// The reference engine's main process: it starts the ranks and serves the API until a signal or a
// failure ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "refengine/rank_options.h"

namespace fo::refengine {

struct EngineOptions : RankSettings {
  /// The folder of config.json; its last component is the model's name.
  std::string model;
  std::vector<RankPlace> ranks;
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  bool exit_on_gms_loss = false;
  /// The networks of engines from which KV caches are pulled, in the form of net::Networks; empty:
  /// KV caches are not moved.
  std::string kv_sources = {};
  /// Limit of the host memory for pulled KV caches.
  base::ByteCount kv_snapshot_bytes = 256 * base::kMiB;
  /// This program's version, for GET /version.
  std::string version;
  /// The descriptor for events as JSON lines; -1: none.
  int status_fd = -1;
};

struct EngineReady {
  std::string address;
  std::uint16_t port = 0;
  std::uint32_t positions = 0;
  /// The time from the start until the last rank had mapped its weights.
  double weights_mapped_seconds = 0;
  double kv_allocated_seconds = 0;
  double listening_seconds = 0;
};
std::string to_json(const EngineReady& ready);

/// Serves until SIGTERM, SIGINT, SIGHUP or SIGQUIT; then requests in flight get five seconds, and a
/// second signal ends it at once. Every rank has ended when it returns or throws. Throws the error
/// that ended the engine: a rank's failure with its status, kSoftware for a rank that died,
/// kUnavailable for a lost GMS with exit_on_gms_loss, kUsage for more ranks than layers. Call it on
/// a process's main thread.
void run_engine(const EngineOptions& options,
                const std::function<void(const EngineReady&)>& on_ready);

}  // namespace fo::refengine
