// Chooses the way in which the state of a moving request gets to its next worker: the old worker's
// KV cache is transferred, or the new worker computes the tokens again. The choice is that of
// `fo-plan migrate` (plan/migration.h). Pure; moves.cc sends the requests.
//
//     GET /kv_snapshot at the old worker -> KvOffer -> is the transfer faster?
//     POST /kv_snapshot/pull at the new worker -> KvSnapshot, which the continuation names
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"
#include "plan/migration.h"
#include "route/answer/stream_chunk.h"
#include "route/worker/worker.h"

namespace fo::route {

/// The costs of a transfer and of a replay. A rate that is not given is the measured one, and
/// before the first measurement the default.
struct KvMoveSettings {
  /// Bandwidth between two workers, in bytes per second.
  std::optional<base::ByteCount> bandwidth = {};
  /// The tokens of a prompt that a worker computes per second.
  std::optional<std::uint64_t> prefill = {};
};
inline constexpr double kDefaultBandwidth = 1024.0 * 1024 * 1024;
inline constexpr double kDefaultPrefill = 5000;
/// Time of a transfer before its first byte: three HTTP requests.
inline constexpr plan::Seconds kTransferSetup{0.02};

/// Adds the time in which a worker has computed a prompt to its measured rate. Short prompts do not
/// count, because most of their time is that of the request itself.
void add_prefill(Worker& worker, std::size_t tokens, base::Duration time);
/// Adds the time of a transfer to a worker to its measured rate.
void add_transfer(Worker& worker, base::ByteCount bytes, base::Duration time);

/// The KV cache of a running request.
struct KvOffer {
  /// The tokens whose keys and values are computed; at least one.
  std::vector<TokenId> tokens;
  base::ByteCount bytes = 0;
};
/// Reads the answer of GET /kv_snapshot, see fo-refengine(1). Throws Error(kProtocol).
KvOffer read_kv_offer(std::string_view body);

/// A KV cache that a worker has pulled.
struct KvSnapshot {
  std::string id;
  std::uint64_t tokens = 0;
  base::ByteCount bytes = 0;
};
/// Reads the answer of POST /kv_snapshot/pull. Throws Error(kProtocol).
KvSnapshot read_kv_snapshot(std::string_view body);

/// Whether one of both lists begins with the other: a worker may have computed tokens that have not
/// arrived yet.
bool is_same_sequence(const std::vector<TokenId>& offered, const std::vector<TokenId>& known);

/// Returns the cost of moving the offered cache to `target`.
plan::Migration migration_of(const KvOffer& offer, const Worker& target,
                             const KvMoveSettings& settings);

/// The reason why the target should compute `tokens` tokens again; empty if the transfer is faster.
std::string reason_for_replay(const plan::Migration& migration, std::size_t tokens);

/// The beginning of the URLs at which another worker can pull from this one: "http://HOST:PORT".
/// nullopt if it cannot: workers pull without TLS, and without a prefix of the paths.
std::optional<std::string> kv_source_of(const Worker& worker);

}  // namespace fo::route
