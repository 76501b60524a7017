// The configuration of one rank, which the engine sends to its process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/strong.h"
#include "base/units.h"
#include "refengine/model/model_config.h"

namespace fo::refengine {

/// Where a rank runs: a device and the GMS with the model's weights on it. Each GMS holds the whole
/// model; the rank uses its layers.
struct RankPlace {
  std::string socket;
  base::DeviceOrdinal device;
  /// Argument of gms::RpcClient::connect.
  std::optional<uid_t> server_uid = {};
};

/// The settings that all ranks of an engine have in common.
struct RankSettings {
  /// Argument of cuda::Driver::open.
  std::string driver;
  /// Size of the KV cache of each rank.
  base::ByteCount kv_bytes = 256 * base::kMiB;
  /// The timeout of waiting for published weights at the start.
  base::Duration load_timeout = std::chrono::minutes(5);
  /// The timeout of waiting for a reader's lock at a wake.
  base::Duration remap_timeout = std::chrono::seconds(30);
  /// Time for which allocating the KV cache is retried on a full device.
  base::Duration kv_retry = std::chrono::seconds(5);
  /// Start asleep: the weights are mapped once, as a check, and released, and no KV cache is
  /// allocated.
  bool start_asleep = false;
};

struct RankOptions : RankPlace, RankSettings {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  ModelConfig config = {};
  /// Work on copies in host memory, as on a real GPU, even with the simulated driver.
  bool host_copies = false;
};

}  // namespace fo::refengine
