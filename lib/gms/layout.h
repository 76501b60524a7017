// One layout: the allocations a writer made, what it says is in them, and the hash over both. Pure
// records; the memory itself is the server's.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gms/types.h"

namespace fo::gms {

class Layout {
 public:
  /// Adds an allocation in the next slot. Slots count 0, 1, 2 … and are never reused.
  const Allocation& add(std::string allocation_id, base::ByteCount size,
                        base::ByteCount aligned_size, std::string tag);

  /// Removes an allocation and the metadata that points into it; false for an unknown id.
  bool remove(std::string_view allocation_id);

  [[nodiscard]] const Allocation* find(std::string_view allocation_id) const;

  /// By slot.
  [[nodiscard]] const std::map<std::uint64_t, Allocation>& allocations() const { return by_slot_; }

  enum class PutResult { kDone, kUnknownAllocation, kOffsetOutOfRange };
  /// What put() would say.
  [[nodiscard]] PutResult check_put(std::string_view allocation_id, std::int64_t offset) const;
  /// Sets a key. `offset` must lie in [0, aligned_size) of its allocation.
  PutResult put(std::string key, std::string_view allocation_id, std::int64_t offset,
                std::string value);
  /// False when there was no such key.
  bool erase(std::string_view key);
  [[nodiscard]] const Metadata& metadata() const { return metadata_; }

  /// The slot that the next allocation gets.
  [[nodiscard]] std::uint64_t next_slot() const { return next_slot_; }
  /// An allocation as it was in another life of this layout: with its slot, at or after
  /// next_slot().
  void restore(Allocation allocation);
  /// Slots before `next_slot` were in use once.
  void skip_slots(std::uint64_t next_slot) { next_slot_ = std::max(next_slot_, next_slot); }

  void clear();

 private:
  std::map<std::uint64_t, Allocation> by_slot_;
  std::unordered_map<std::string, std::uint64_t> slot_of_;
  std::uint64_t next_slot_ = 0;
  Metadata metadata_;
};

/// Lower-case hex SHA-256 over allocations (in slot order, numbered by rank) and metadata (in byte
/// order of the keys), as gms-protocol(7) spells it out. It covers the layout, not the data.
std::string layout_hash(const Layout& layout);

}  // namespace fo::gms
