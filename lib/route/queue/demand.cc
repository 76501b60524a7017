#include "route/queue/demand.h"

#include <algorithm>
#include <limits>

#include "plan/capacity.h"

namespace fo::route {
namespace {

constexpr std::size_t kMaxRefusedClients = 10'000;

}  // namespace

std::int64_t Demand::number_at(base::Duration now) const { return (now - started_) / kSlice; }

Demand::Slice& Demand::place_of(std::int64_t number) {
  return slices_[static_cast<std::size_t>(number) % slices_.size()];
}

Demand::Slice& Demand::slice_at(base::Duration now) {
  const std::int64_t number = number_at(now);
  Slice& slice = place_of(number);
  if (slice.number != number) {
    slice = {.number = number};
    refused_.clear();
  }
  return slice;
}

void Demand::on_admitted(base::Duration now) { ++slice_at(now).admitted; }

void Demand::on_refused(const std::string& client, base::Duration admitted_at, base::Duration now) {
  const std::int64_t number = number_at(admitted_at);
  Slice& of_admission = place_of(number);
  if (of_admission.number == number && of_admission.admitted > 0) --of_admission.admitted;
  Slice& slice = slice_at(now);
  if (refused_.size() < kMaxRefusedClients && refused_.insert(client).second) ++slice.refused;
}

double Demand::rate(base::Duration now) const {
  const std::int64_t first =
      std::max<std::int64_t>(number_at(now) - settings_.time / kSlice + 1, 0);
  std::uint64_t admitted = 0;
  std::uint64_t refused = 0;
  for (const Slice& slice : slices_) {
    if (slice.number < first) continue;
    admitted += slice.admitted;
    refused += slice.refused;
  }
  const plan::Seconds time = std::max(now - started_ - first * kSlice, kSlice);
  const auto counted = static_cast<double>(admitted);
  const double more = std::min(static_cast<double>(refused), counted * (settings_.max_factor - 1));
  return (counted + more) / time.count();
}

void ServedMean::add(base::Duration ttft, base::Duration total, std::uint64_t prompt_tokens,
                     std::uint64_t answer_tokens, base::Duration now) {
  constexpr double kLeastWeight = 0.02;
  // Times and counts of 0 have no rate.
  constexpr base::Duration kLeast = std::chrono::microseconds(1);
  const auto tokens = static_cast<double>(std::max<std::uint64_t>(answer_tokens, 1));
  const plan::Seconds per_token =
      std::max(plan::Seconds(total - ttft) / tokens, plan::Seconds(kLeast));
  const MeanRequest request{.ttft = std::max(ttft, kLeast),
                            .tpot = per_token,
                            .prompt_tokens = static_cast<double>(prompt_tokens),
                            .answer_tokens = tokens};
  if (now - last_ >= kMemory) requests_ = 0;
  last_ = now;
  const double weight = std::max(1.0 / static_cast<double>(++requests_), kLeastWeight);
  mean_.ttft += (request.ttft - mean_.ttft) * weight;
  mean_.tpot += (request.tpot - mean_.tpot) * weight;
  mean_.prompt_tokens += (request.prompt_tokens - mean_.prompt_tokens) * weight;
  mean_.answer_tokens += (request.answer_tokens - mean_.answer_tokens) * weight;
}

std::optional<MeanRequest> ServedMean::mean(base::Duration now) const {
  const bool is_known = requests_ >= kMinRequests && now - last_ < kMemory;
  return is_known ? std::optional(mean_) : std::nullopt;
}

double carried_rate(std::span<const UsedWorker> workers, const MeanRequest& mean) {
  const plan::Seconds residence = plan::residence_time(mean.ttft, mean.answer_tokens, mean.tpot);
  const double sequence = mean.prompt_tokens + mean.answer_tokens;
  double carried = 0;
  for (const UsedWorker& worker : workers) {
    if (worker.slots == 0 || worker.weight <= 0 || worker.kv_tokens == 0) continue;
    std::uint64_t concurrency = worker.slots;
    if (worker.kv_tokens) {
      const plan::Replica replica{.kv_tokens = static_cast<double>(*worker.kv_tokens),
                                  .sequence_tokens = sequence,
                                  .slots = worker.slots,
                                  .measured = {}};
      concurrency = plan::concurrency_of(replica, mean.tpot);
    }
    carried += worker.weight * plan::carried_rate(1, concurrency, residence);
  }
  return carried;
}

double capacity_ratio(double carried, double demanded) {
  return demanded > 0 ? carried / demanded : std::numeric_limits<double>::infinity();
}

void Level::update(double ratio, base::Duration now) {
  automatic_ = plan::next_degradation(automatic_, ratio, now, rules_);
  ratio_ = ratio;
}

void Level::pin(std::optional<std::size_t> level) {
  // Throws for a level that does not exist.
  if (level) plan::setting_of(*level, ratio_);
  pinned_ = level;
}

}  // namespace fo::route
