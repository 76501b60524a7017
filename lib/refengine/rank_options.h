// What one rank of the engine is to do, as the engine tells its process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"
#include "refengine/model_config.h"

namespace fo::refengine {

struct RankOptions {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  ModelConfig config;
  /// As cuda::Driver::open takes it.
  std::string driver;
  /// The GMS that has the weights.
  std::string socket;
  int device = 0;
  /// As gms::RpcClient::connect takes it.
  std::optional<uid_t> server_uid = {};
  base::ByteCount kv_bytes = 0;
  /// For the weights to be published, at start.
  base::Duration load_timeout{};
  /// For a reader's lock, at waking.
  base::Duration remap_timeout{};
  /// For a full device to make room for the KV cache.
  base::Duration kv_retry{};
  /// Give the weights back once they were seen, and allocate no KV cache.
  bool start_asleep = false;
  /// Work on copies in host memory, as on a real GPU, also where the driver is the simulated one.
  bool host_copies = false;
};

}  // namespace fo::refengine
