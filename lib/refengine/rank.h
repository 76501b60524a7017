// One rank of the engine: some layers of the model, on one device, in one process. Blocking; for
// one thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cuda/memory.h"
#include "gms/client/memory_manager.h"
#include "refengine/frame.h"
#include "refengine/kv/kv_memory.h"
#include "refengine/model/sampler.h"
#include "refengine/model/transformer.h"
#include "refengine/model/weight_map.h"
#include "refengine/rank_options.h"

namespace fo::refengine {

class Rank {
 public:
  /// Opens the driver and the device, and reserves the addresses of the KV cache. Throws
  /// kUnavailable without a device, kUsage if kv_bytes cannot hold a position, and what
  /// cuda::Driver::open throws.
  explicit Rank(RankOptions options);

  /// The first call waits for a published layout, maps all of it read-only and binds the rank's
  /// tensors; later calls map the same memory at the same addresses, if the layout is unchanged.
  /// Throws kUnavailable (no server), kTryAgain (no lock in time), kBadData (stale layout, or
  /// another model).
  void map_weights();
  /// Unmaps the weights and releases the reader's lock.
  void unmap_weights();
  [[nodiscard]] base::ByteCount weight_bytes() const { return weights_.bytes(); }

  /// Throws cuda::OutOfMemory (75) if the device is still full after kv_retry.
  void allocate_kv();
  void free_kv() { kv_.free(); }
  [[nodiscard]] base::ByteCount kv_bytes() const { return kv_.bytes(); }
  [[nodiscard]] std::uint32_t positions() const { return layout_.positions(); }

  /// The keys and values of positions that forward() has processed, in the order of KvLayout.
  /// Throws Error(kProtocol) for positions outside the cache.
  [[nodiscard]] std::vector<float> read_kv(KvRange range);
  /// Writes what read_kv() returns. Throws Error(kProtocol) also for another number of values.
  void write_kv(KvRange range, std::span<const float> values);

  /// A digest of the configuration and of the beginning of each tensor: KV caches of two models
  /// with the same one can be exchanged. Needs mapped weights.
  [[nodiscard]] std::string fingerprint() const;

  /// The descriptor of the connection, readable when the GMS closes it; -1 without a connection.
  [[nodiscard]] int gms_fd();
  /// Closes a lost connection; the mappings are kept.
  void forget_gms() { weights_.disconnect(); }

  /// Only for the first rank: computes the embedding of `tokens`.
  void embed(std::span<const TokenId> tokens, std::span<float> hidden) const;
  /// Runs the rank's layers, in place.
  void forward(std::span<float> hidden, std::size_t position);
  /// Only for the last rank: chooses the token for `position`, which follows the last of the hidden
  /// states.
  TokenChoice choose(std::span<const float> hidden, const Sampling& sampling,
                     const Constraints& constraints, std::uint64_t position);
  /// Only for the last rank: returns the probability of `token` after one token's hidden state,
  /// with those of the `count` likeliest ones.
  TokenChoice score(std::span<const float> hidden, TokenId token, std::size_t count);

  [[nodiscard]] bool is_first() const { return options_.rank == 0; }
  [[nodiscard]] bool is_last() const { return options_.rank + 1 == options_.ranks; }
  [[nodiscard]] const RankOptions& options() const { return options_; }

 private:
  void bind();
  void remap();
  void copy_to_host();
  [[nodiscard]] AllocationBytes find_allocation(const gms::AllocationId& id) const;
  std::vector<std::span<float>> kv_rows(KvRange range);

  RankOptions options_;
  LayerRange layers_;
  KvLayout layout_;
  std::shared_ptr<const cuda::Driver> driver_;
  // True if the host cannot read the device's memory.
  bool copies_;
  // Empty unless copies_ is set.
  cuda::PrimaryContext context_;
  gms::MemoryManager weights_;
  // A copy of each allocation, if copies_ is set.
  std::vector<std::vector<std::byte>> host_weights_;
  WeightView view_;
  std::optional<Transformer> transformer_;
  KvMemory kv_;
  std::vector<float> logits_;
};

}  // namespace fo::refengine
