#include "gms/layout.h"

#include <utility>

namespace fo::gms {

const Allocation& Layout::add(std::string allocation_id, base::ByteCount size,
                              base::ByteCount aligned_size, std::string tag) {
  restore({std::move(allocation_id), size, aligned_size, std::move(tag), next_slot_});
  return by_slot_.rbegin()->second;
}

void Layout::restore(Allocation allocation) {
  const std::uint64_t slot = allocation.layout_slot;
  slot_of_.emplace(allocation.allocation_id, slot);
  by_slot_.emplace_hint(by_slot_.end(), slot, std::move(allocation));
  next_slot_ = slot + 1;
}

bool Layout::remove(std::string_view allocation_id) {
  const auto found = slot_of_.find(std::string(allocation_id));
  if (found == slot_of_.end()) return false;
  std::erase_if(metadata_,
                [&](const auto& entry) { return entry.second.allocation_id == allocation_id; });
  by_slot_.erase(found->second);
  slot_of_.erase(found);
  return true;
}

const Allocation* Layout::find(std::string_view allocation_id) const {
  const auto found = slot_of_.find(std::string(allocation_id));
  return found == slot_of_.end() ? nullptr : &by_slot_.at(found->second);
}

Layout::PutResult Layout::check_put(std::string_view allocation_id, std::int64_t offset) const {
  const Allocation* allocation = find(allocation_id);
  if (allocation == nullptr) return PutResult::kUnknownAllocation;
  const bool inside =
      offset >= 0 && static_cast<base::ByteCount>(offset) < allocation->aligned_size;
  return inside ? PutResult::kDone : PutResult::kOffsetOutOfRange;
}

Layout::PutResult Layout::put(std::string key, std::string_view allocation_id, std::int64_t offset,
                              std::string value) {
  const PutResult result = check_put(allocation_id, offset);
  if (result == PutResult::kDone) {
    metadata_.insert_or_assign(
        std::move(key), MetadataEntry{std::string(allocation_id),
                                      static_cast<base::ByteCount>(offset), std::move(value)});
  }
  return result;
}

bool Layout::erase(std::string_view key) {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return false;
  metadata_.erase(found);
  return true;
}

void Layout::clear() { *this = Layout(); }

}  // namespace fo::gms
