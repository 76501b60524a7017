// The reference engine's main process: it starts the ranks and serves the API until a signal or a
// failure ends it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/strong.h"
#include "base/units.h"

namespace fo::refengine {

/// Where a rank runs: a device and the GMS with the model's weights on it. Each GMS holds the whole
/// model; the rank uses its layers.
struct RankPlace {
  std::string socket;
  base::DeviceOrdinal device;
  /// Argument of gms::RpcClient::connect.
  std::optional<uid_t> server_uid = {};
};

struct EngineOptions {
  /// The folder of config.json; its last component is the model's name.
  std::string model;
  std::vector<RankPlace> ranks;
  std::string driver;
  /// Size of the KV cache of each rank.
  base::ByteCount kv_bytes = 256 * base::kMiB;
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  base::Duration load_timeout = std::chrono::minutes(5);
  base::Duration remap_timeout = std::chrono::seconds(30);
  base::Duration kv_retry = std::chrono::seconds(5);
  bool exit_on_gms_loss = false;
  /// Check and release the weights at start: the engine starts asleep, without a KV cache.
  bool start_asleep = false;
  /// Networks of engines that KV caches are pulled from, as net::Networks; empty: KV caches are not
  /// moved.
  std::string kv_sources = {};
  /// Limit of the host memory for pulled KV caches.
  base::ByteCount kv_snapshot_bytes = 256 * base::kMiB;
  /// This program's version, for GET /version.
  std::string version;
  /// For events as JSON lines; -1: none.
  int status_fd = -1;
};

struct EngineReady {
  std::string address;
  std::uint16_t port = 0;
  std::uint32_t positions = 0;
  /// From the start until the last rank had mapped its weights.
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
