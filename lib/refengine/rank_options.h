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

struct RankOptions {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  ModelConfig config;
  /// Argument of cuda::Driver::open.
  std::string driver;
  /// The GMS with the weights.
  std::string socket;
  base::DeviceOrdinal device;
  /// Argument of gms::RpcClient::connect.
  std::optional<uid_t> server_uid = {};
  base::ByteCount kv_bytes = 0;
  /// Timeout of the published weights at start.
  base::Duration load_timeout{};
  /// Timeout of a reader's lock at wake.
  base::Duration remap_timeout{};
  /// Time for which allocating the KV cache is retried on a full device.
  base::Duration kv_retry{};
  /// Release the weights after they were checked, and allocate no KV cache.
  bool start_asleep = false;
  /// Work on copies in host memory, as on a real GPU, even with the simulated driver.
  bool host_copies = false;
};

}  // namespace fo::refengine
