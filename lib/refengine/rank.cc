#include "refengine/rank.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "gms/client/remap_check.h"
#include "refengine/kv/fingerprint.h"

namespace fo::refengine {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;

KvLayout layout_for(const RankOptions& options, LayerRange layers) {
  const KvLayout layout(options.config, layers, options.kv_bytes);
  if (layout.positions() == 0) {
    throw Error(ExitStatus::kUsage,
                "lay out the KV cache: one position takes " +
                    base::format_size(KvLayout::bytes_per_position(options.config, layers)) +
                    ", available are " + base::format_size(options.kv_bytes));
  }
  return layout;
}

}  // namespace

Rank::Rank(RankOptions options)
    : options_(std::move(options)),
      layers_(layers_of_rank(options_.config.layers, options_.rank, options_.ranks)),
      layout_(layout_for(options_, layers_)),
      driver_(cuda::Driver::open(options_.driver)),
      copies_(options_.host_copies || !driver_->simulated()),
      weights_(driver_, cuda::device_info(*driver_, options_.device), options_.socket,
               options_.server_uid),
      kv_(driver_, weights_.device(), layout_, options_.kv_bytes, copies_),
      logits_(options_.config.vocab_size) {
  if (copies_) {
    context_ = cuda::PrimaryContext::retain(driver_, weights_.device().ordinal);
  }
}

void Rank::map_weights() {
  if (transformer_) {
    remap();
    copy_to_host();
    return;
  }
  const Deadline deadline = Deadline::after(options_.load_timeout);
  if (!weights_.connect(gms::LockType::kRo, deadline, gms::RpcClient::Retry::kUntilTheDeadline)) {
    throw Error(ExitStatus::kTryAgain, "read weights from " + base::quoted(options_.socket) +
                                           ": Timeout waiting for lock ro: nothing was published");
  }
  weights_.import_all(cuda::Access::kRead);
  copy_to_host();
  bind();
}

void Rank::bind() {
  view_ = refengine::map_weights(weights_.fetch_metadata(), [this](const gms::AllocationId& id) {
    return find_allocation(id);
  });
  transformer_.emplace(options_.config, layers_, view_);
}

void Rank::remap() {
  const gms::RemapOutcome outcome = weights_.remap_all(Deadline::after(options_.remap_timeout));
  if (outcome.result != gms::RemapResult::kOk) {
    throw Error(gms::exit_status(outcome.result), outcome.reason);
  }
}

// The buffers keep their addresses across a sleep, so that the transformer's pointers stay valid.
// Their bytes are read again, because a layout that was published again may have other weights.
void Rank::copy_to_host() {
  if (!copies_) return;
  const std::vector<gms::MappedAllocation>& allocations = weights_.allocations();
  host_weights_.resize(allocations.size());
  for (std::size_t i = 0; i < allocations.size(); ++i) {
    host_weights_[i].resize(allocations[i].allocation.aligned_size);
    cuda::copy_to_host(*driver_, host_weights_[i], allocations[i].address);
  }
}

AllocationBytes Rank::find_allocation(const gms::AllocationId& id) const {
  const std::vector<gms::MappedAllocation>& allocations = weights_.allocations();
  for (std::size_t i = 0; i < allocations.size(); ++i) {
    const gms::MappedAllocation& one = allocations[i];
    if (one.allocation.allocation_id != id) continue;
    const auto* data =
        copies_ ? host_weights_[i].data() : reinterpret_cast<const std::byte*>(one.address);
    return {data, one.allocation.aligned_size};
  }
  return {};
}

void Rank::unmap_weights() { weights_.unmap_all(); }

void Rank::allocate_kv() { kv_.allocate(Deadline::after(options_.kv_retry)); }

// The contiguous parts of the cache that hold `range`.
std::vector<std::span<float>> Rank::kv_rows(KvRange range) {
  if (range.position > positions() || range.count > positions() - range.position) {
    throw Error(ExitStatus::kProtocol, "read a range of the KV cache: outside it");
  }
  const std::size_t size = range.count * layout_.head_dim();
  std::vector<std::span<float>> rows;
  for (const std::size_t at : layout_.rows(range.position))
    rows.emplace_back(kv_.data() + at, size);
  return rows;
}

std::vector<float> Rank::read_kv(KvRange range) {
  std::vector<float> values;
  for (const std::span<float> row : kv_rows(range)) {
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

void Rank::write_kv(KvRange range, std::span<const float> values) {
  const std::vector<std::span<float>> rows = kv_rows(range);
  if (values.size() != rows.size() * rows.front().size()) {
    throw Error(ExitStatus::kProtocol, "write a range of the KV cache: another number of values");
  }
  for (const std::span<float> row : rows) {
    std::ranges::copy(values.first(row.size()), row.begin());
    values = values.subspan(row.size());
  }
  kv_.write_through(range.position, range.count);
}

std::string Rank::fingerprint() const { return fingerprint_of(options_.config, view_); }

int Rank::gms_fd() { return weights_.connected() ? weights_.rpc().fd() : -1; }

void Rank::embed(std::span<const TokenId> tokens, std::span<float> hidden) const {
  transformer_->embed(tokens, hidden);
}

void Rank::forward(std::span<float> hidden, std::size_t position) {
  transformer_->forward(hidden, position, layout_, kv_.data());
  kv_.write_through(position, hidden.size() / options_.config.hidden_size);
}

TokenChoice Rank::choose(std::span<const float> hidden, const Sampling& sampling,
                         const Constraints& constraints, std::uint64_t position) {
  transformer_->logits(hidden.last(options_.config.hidden_size), logits_);
  return choose_token(logits_, sampling, constraints, position);
}

TokenChoice Rank::score(std::span<const float> hidden, TokenId token, std::size_t count) {
  transformer_->logits(hidden, logits_);
  return score_token(logits_, token, count);
}

}  // namespace fo::refengine
