#include "route/resume/kv_move.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "json/object.h"
#include "net/address.h"

namespace fo::route {
namespace {

constexpr base::ByteCount kMaxKvAnswer = 16 * base::kMiB;
// More than the KV cache of any model has for a token.
constexpr base::ByteCount kMaxTokenBytes = base::kGiB;
constexpr std::size_t kMaxSnapshotId = 256;
constexpr std::size_t kMinMeasuredTokens = 256;
// plan::Migration has limits.
constexpr double kMaxRate = 1e12;

double rate_of(std::optional<std::uint64_t> given, const Rate& measured, double fallback) {
  const double rate =
      given ? static_cast<double>(*given) : measured.per_second().value_or(fallback);
  return std::clamp(rate, 1.0, kMaxRate);
}

double milliseconds(plan::Seconds time) { return std::round(time.count() * 1e4) / 10; }

}  // namespace

void add_prefill(Worker& worker, std::size_t tokens, base::Duration time) {
  if (tokens >= kMinMeasuredTokens) worker.prefill.add(tokens, time);
}

void add_transfer(Worker& worker, base::ByteCount bytes, base::Duration time) {
  worker.link.add(bytes, time - std::chrono::duration_cast<base::Duration>(kTransferSetup));
}

KvOffer read_kv_offer(std::string_view body) {
  const auto what = [] { return std::string("the offer of a KV cache"); };
  return fo::json::read_object(body, kMaxKvAnswer, what, [](const nlohmann::json& object) {
    KvOffer offer{.tokens = object.at("tokens"), .bytes = object.at("bytes")};
    if (offer.tokens.empty() || offer.bytes == 0) throw fo::json::Misfit("it is empty");
    if (offer.bytes / offer.tokens.size() > kMaxTokenBytes) {
      throw fo::json::Misfit("a token has more than a GiB");
    }
    return offer;
  });
}

KvSnapshot read_kv_snapshot(std::string_view body) {
  const auto what = [] { return std::string("the answer to a pull"); };
  return fo::json::read_object(body, kMaxKvAnswer, what, [](const nlohmann::json& object) {
    KvSnapshot snapshot{
        .id = object.at("snapshot"), .tokens = object.at("tokens"), .bytes = object.at("bytes")};
    if (snapshot.id.empty() || snapshot.id.size() > kMaxSnapshotId) {
      throw fo::json::Misfit("the id of the snapshot is empty, or too long");
    }
    return snapshot;
  });
}

bool is_same_sequence(const std::vector<TokenId>& offered, const std::vector<TokenId>& known) {
  const auto common = static_cast<std::ptrdiff_t>(std::min(offered.size(), known.size()));
  return std::equal(offered.begin(), offered.begin() + common, known.begin());
}

plan::Migration migration_of(const KvOffer& offer, const Worker& target,
                             const KvMoveSettings& settings) {
  return {.setup = kTransferSetup,
          .bytes_per_token =
              static_cast<double>(offer.bytes) / static_cast<double>(offer.tokens.size()),
          .bandwidth = rate_of(settings.bandwidth, target.link, kDefaultBandwidth),
          .prefill_rate = rate_of(settings.prefill, target.prefill, kDefaultPrefill)};
}

std::string reason_for_replay(const plan::Migration& migration, std::size_t tokens) {
  const auto length = static_cast<double>(tokens);
  const plan::Seconds transfer = plan::transfer_time(migration, length);
  const plan::Seconds replay = plan::replay_time(migration, length);
  if (transfer < replay) return {};
  return fmt::format("{} tokens take {} ms, and their transfer would take {} ms", tokens,
                     milliseconds(replay), milliseconds(transfer));
}

std::optional<std::string> kv_source_of(const Worker& worker) {
  const http::Origin& origin = worker.origin;
  if (origin.tls || !origin.socket_path.empty() || !worker.base_path.empty()) return std::nullopt;
  return "http://" + net::to_string(origin.address);
}

}  // namespace fo::route
