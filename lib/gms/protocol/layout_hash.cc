// Separate from layout.cc, so that only programs that hash need OpenSSL.
#include "gms/protocol/layout_hash.h"

#include <limits>
#include <span>
#include <string>

namespace fo::gms {

LayoutHasher::LayoutHasher(const Layout& layout)
    : layout_(layout),
      next_allocation_(layout.allocations().begin()),
      next_key_(layout.metadata().begin()) {}

std::size_t LayoutHasher::add(std::string_view text) {
  sha256_.add(std::as_bytes(std::span(text)));
  return text.size();
}

bool LayoutHasher::step(std::size_t bytes) {
  std::size_t taken = 0;
  for (; taken < bytes && next_allocation_ != layout_.allocations().end(); ++next_allocation_) {
    const Allocation& allocation = next_allocation_->second;
    std::string rank = std::to_string(rank_of_.size());
    taken += add(rank + ":" + std::to_string(allocation.size) + ":" +
                 std::to_string(allocation.aligned_size) + ":" + allocation.tag);
    rank_of_.emplace(allocation.allocation_id.value(), std::move(rank));
  }
  for (; taken < bytes && next_key_ != layout_.metadata().end(); ++next_key_) {
    const auto& [key, entry] = *next_key_;
    taken += add(key + ":" + rank_of_.at(entry.allocation_id.value()) + ":" +
                 std::to_string(entry.offset_bytes) + ":");
    taken += add(entry.value);
  }
  return next_allocation_ != layout_.allocations().end() || next_key_ != layout_.metadata().end();
}

LayoutHash layout_hash(const Layout& layout) {
  LayoutHasher hasher(layout);
  while (hasher.step(std::numeric_limits<std::size_t>::max())) {
  }
  return hasher.finish();
}

}  // namespace fo::gms
