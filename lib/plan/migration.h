// Computes the time that a sequence takes to move to another engine: its KV cache is transferred,
// or its tokens are computed again (replay). A transfer needs a source that is alive: a dead GPU of
// a tensor-parallel group held a part of every KV block, so that only replay is left. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/times.h"

namespace fo::plan {

/// The shape of a model's KV cache.
struct KvShape {
  std::uint64_t layers;
  std::uint64_t kv_heads;
  std::uint64_t head_size;
  std::uint64_t element_bytes;
};

/// The bytes of one token in the KV cache: 2 * layers * kv_heads * head_size * element_bytes (a key
/// and a value), as in seed 002. With the number of heads on one GPU of a group, the result is that
/// GPU's part.
double kv_bytes_per_token(const KvShape& shape);

/// The raw bandwidth of PCI Express 3 to 5 in one direction, in bytes per second: transfers * lanes
/// * 128/130 / 8 (PCI Express Base Specification 5.0, 128b/130b encoding). `transfers` is the
/// number per second and lane: 32e9 for generation 5.
double pcie_bandwidth(double transfers, std::uint64_t lanes);

struct Migration {
  /// The time of a transfer before its first byte; may be 0.
  Seconds setup;
  /// Bytes per token on each GPU of the group. The GPUs transfer their parts at the same time.
  double bytes_per_token;
  /// Bytes per second of the link of each GPU.
  double bandwidth;
  /// Tokens per second.
  double prefill_rate;
};

/// setup + tokens * bytes_per_token / bandwidth. Throws Error(kUsage) unless all values are more
/// than 0 (the set-up time: at least 0), the set-up time at most a day, the bandwidth at most 1e18,
/// and all others at most 1e12. So do the functions below.
Seconds transfer_time(const Migration& migration, double tokens);

/// tokens / prefill_rate.
Seconds replay_time(const Migration& migration, double tokens);

/// The length below which replay is faster than a transfer, and above which it is slower:
/// setup / (1/prefill_rate - bytes_per_token/bandwidth). nullopt if one of the two is faster at
/// every length: without a set-up time both are proportional to the length.
std::optional<double> crossover_tokens(const Migration& migration);

/// The time until the last of `requests`, each with this many tokens, is replayed. The requests are
/// spread evenly over `targets`, and each target replays one after the other: ceil(requests /
/// targets) * replay_time.
Seconds last_replay(const Migration& migration, double tokens, std::uint64_t requests,
                    std::uint64_t targets);

/// The time until the last of `requests` is transferred. The links of the source transfer one after
/// the other, for any number of targets: requests * transfer_time.
Seconds last_transfer(const Migration& migration, double tokens, std::uint64_t requests);

}  // namespace fo::plan
