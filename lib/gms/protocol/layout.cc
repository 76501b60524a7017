#include "gms/protocol/layout.h"

#include <iterator>
#include <utility>

namespace fo::gms {
namespace {

base::ByteCount cost(const Allocation& allocation) {
  return record_cost(allocation.allocation_id.value().size() + allocation.tag.size());
}

base::ByteCount cost(const std::string& key, const MetadataEntry& entry) {
  return record_cost(key.size() + entry.allocation_id.value().size() + entry.value.size());
}

}  // namespace

const Allocation& Layout::add(AllocationId allocation_id, base::ByteCount size,
                              base::ByteCount aligned_size, std::string tag) {
  restore({std::move(allocation_id), size, aligned_size, std::move(tag), next_slot_});
  return by_slot_.rbegin()->second;
}

void Layout::restore(Allocation allocation) {
  const std::uint64_t slot = allocation.layout_slot;
  records_ += cost(allocation);
  bytes_ += allocation.aligned_size;
  slot_of_.emplace(allocation.allocation_id, slot);
  by_slot_.emplace_hint(by_slot_.end(), slot, std::move(allocation));
  next_slot_ = slot + 1;
}

bool Layout::remove(const AllocationId& allocation_id) {
  const auto found = slot_of_.find(allocation_id);
  if (found == slot_of_.end()) return false;
  for (auto at = metadata_.begin(); at != metadata_.end();) {
    at = at->second.allocation_id == allocation_id ? erase(at) : std::next(at);
  }
  const auto allocation = by_slot_.find(found->second);
  records_ -= cost(allocation->second);
  bytes_ -= allocation->second.aligned_size;
  by_slot_.erase(allocation);
  slot_of_.erase(found);
  return true;
}

const Allocation* Layout::find(const AllocationId& allocation_id) const {
  const auto found = slot_of_.find(allocation_id);
  return found == slot_of_.end() ? nullptr : &by_slot_.at(found->second);
}

Layout::PutResult Layout::check_put(const AllocationId& allocation_id, std::int64_t offset) const {
  const Allocation* allocation = find(allocation_id);
  if (allocation == nullptr) return PutResult::kUnknownAllocation;
  const bool inside =
      offset >= 0 && static_cast<base::ByteCount>(offset) < allocation->aligned_size;
  return inside ? PutResult::kDone : PutResult::kOffsetOutOfRange;
}

Layout::PutResult Layout::put(std::string key, AllocationId allocation_id, std::int64_t offset,
                              std::string value) {
  const PutResult result = check_put(allocation_id, offset);
  if (result == PutResult::kDone) {
    erase(key);
    MetadataEntry entry{std::move(allocation_id), static_cast<base::ByteCount>(offset),
                        std::move(value)};
    records_ += cost(key, entry);
    metadata_.emplace(std::move(key), std::move(entry));
  }
  return result;
}

bool Layout::erase(std::string_view key) {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return false;
  erase(found);
  return true;
}

Metadata::iterator Layout::erase(Metadata::iterator at) {
  records_ -= cost(at->first, at->second);
  return metadata_.erase(at);
}

void Layout::clear() { *this = Layout(); }

}  // namespace fo::gms
