#include "plan/migration.h"

#include <utility>

#include "plan/argument.h"

namespace fo::plan {
namespace {

constexpr double kMaxBandwidth = 1e18;
// Limit of a model's dimensions, so that their product is finite and at most kMaxCount.
constexpr double kMaxDimension = 1e6;

void check(const Migration& migration, double tokens) {
  check_time("setup", migration.setup, 0);
  check_positive("token-bytes", migration.bytes_per_token);
  check_positive("bandwidth", migration.bandwidth, kMaxBandwidth);
  check_positive("prefill", migration.prefill_rate);
  check_positive("tokens", tokens);
}

}  // namespace

double kv_bytes_per_token(const KvShape& shape) {
  double bytes = 2;
  for (const auto& [name, value] :
       {std::pair("layers", shape.layers), std::pair("kv_heads", shape.kv_heads),
        std::pair("head_size", shape.head_size), std::pair("element_bytes", shape.element_bytes)}) {
    check_count(name, value, kMaxDimension);
    bytes *= static_cast<double>(value);
  }
  return bytes;
}

double pcie_bandwidth(double transfers, std::uint64_t lanes) {
  check_positive("transfers", transfers);
  check_count("lanes", lanes);
  return transfers * static_cast<double>(lanes) * 128 / 130 / 8;
}

Seconds transfer_time(const Migration& migration, double tokens) {
  check(migration, tokens);
  return migration.setup + Seconds(tokens * migration.bytes_per_token / migration.bandwidth);
}

Seconds replay_time(const Migration& migration, double tokens) {
  check(migration, tokens);
  return Seconds(tokens / migration.prefill_rate);
}

std::optional<double> crossover_tokens(const Migration& migration) {
  const Seconds gain = replay_time(migration, 1) - (transfer_time(migration, 1) - migration.setup);
  if (migration.setup == Seconds::zero() || gain <= Seconds::zero()) return std::nullopt;
  return migration.setup / gain;
}

Seconds last_replay(const Migration& migration, double tokens, std::uint64_t requests,
                    std::uint64_t targets) {
  check_count("requests", requests);
  check_count("targets", targets);
  const std::uint64_t rounds = (requests + targets - 1) / targets;
  return static_cast<double>(rounds) * replay_time(migration, tokens);
}

Seconds last_transfer(const Migration& migration, double tokens, std::uint64_t requests) {
  check_count("requests", requests);
  return static_cast<double>(requests) * transfer_time(migration, tokens);
}

}  // namespace fo::plan
