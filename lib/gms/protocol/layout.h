// One layout: the allocations and metadata of a writer, and the hash over both. Pure records; the
// server holds the memory.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gms/protocol/types.h"

namespace fo::gms {

/// Maximum memory for a layout's records, as record_cost() counts it.
inline constexpr base::ByteCount kMaxLayoutRecords = 256 * base::kMiB;
/// More allocations of 2 MiB than fit on any device.
inline constexpr std::size_t kMaxAllocations = 1u << 18;
/// Maximum length of a key or a tag.
inline constexpr std::size_t kMaxName = 4096;

/// The approximate memory of the record of an allocation or a key with this much text.
constexpr base::ByteCount record_cost(std::size_t text) { return 256 + text; }

class Layout {
 public:
  /// Adds an allocation in the next slot. Slots count from 0 and are never reused.
  const Allocation& add(AllocationId allocation_id, base::ByteCount size,
                        base::ByteCount aligned_size, std::string tag);

  /// Removes an allocation and its metadata; false for an unknown id.
  bool remove(const AllocationId& allocation_id);

  [[nodiscard]] const Allocation* find(const AllocationId& allocation_id) const;

  /// By slot.
  [[nodiscard]] const std::map<std::uint64_t, Allocation>& allocations() const { return by_slot_; }

  enum class PutResult { kDone, kUnknownAllocation, kOffsetOutOfRange };
  /// The result that put() would return.
  [[nodiscard]] PutResult check_put(const AllocationId& allocation_id, std::int64_t offset) const;
  /// Sets a key. `offset` must lie in [0, aligned_size) of its allocation.
  PutResult put(std::string key, AllocationId allocation_id, std::int64_t offset,
                std::string value);
  /// False if the key does not exist.
  bool erase(std::string_view key);
  [[nodiscard]] const Metadata& metadata() const { return metadata_; }

  /// The slot of the next allocation.
  [[nodiscard]] std::uint64_t next_slot() const { return next_slot_; }
  /// Adds an allocation of a saved layout with its slot, which must be at least next_slot().
  void restore(Allocation allocation);
  /// Marks the slots before `next_slot` as used.
  void skip_slots(std::uint64_t next_slot) { next_slot_ = std::max(next_slot_, next_slot); }

  /// Device memory of the allocations: the sum of their aligned sizes.
  [[nodiscard]] base::ByteCount bytes() const { return bytes_; }

  /// The sum of record_cost() over allocations (id and tag) and keys (key, id and value).
  [[nodiscard]] base::ByteCount records() const { return records_; }

  void clear();

 private:
  Metadata::iterator erase(Metadata::iterator at);

  std::map<std::uint64_t, Allocation> by_slot_;
  std::unordered_map<AllocationId, std::uint64_t> slot_of_;
  std::uint64_t next_slot_ = 0;
  Metadata metadata_;
  base::ByteCount bytes_ = 0;
  base::ByteCount records_ = 0;
};

/// Lower-case hex SHA-256 over allocations (in slot order, numbered by rank) and metadata (in byte
/// order of the keys), as gms-protocol(7) specifies. It covers the layout, not the data.
LayoutHash layout_hash(const Layout& layout);

}  // namespace fo::gms
