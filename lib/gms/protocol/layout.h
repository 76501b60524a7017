// One layout: the allocations a writer made, what it says is in them, and the hash over both. Pure
// records; the memory itself is the server's.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gms/protocol/types.h"

namespace fo::gms {

/// The most that a layout's records may take in memory, as record_cost() counts it.
inline constexpr base::ByteCount kMaxLayoutRecords = 256 * base::kMiB;
/// Of 2 MiB each, these are more than any device has.
inline constexpr std::size_t kMaxAllocations = 1u << 18;
/// Of a key or a tag.
inline constexpr std::size_t kMaxName = 4096;

/// What an allocation or a key with so much text takes in memory, roughly.
constexpr base::ByteCount record_cost(std::size_t text) { return 256 + text; }

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

  /// What the allocations take of the device: the sum of their aligned sizes.
  [[nodiscard]] base::ByteCount bytes() const { return bytes_; }

  /// The sum of record_cost() over allocations (id and tag) and keys (key, id and value).
  [[nodiscard]] base::ByteCount records() const { return records_; }

  void clear();

 private:
  Metadata::iterator erase(Metadata::iterator at);

  std::map<std::uint64_t, Allocation> by_slot_;
  std::unordered_map<std::string, std::uint64_t> slot_of_;
  std::uint64_t next_slot_ = 0;
  Metadata metadata_;
  base::ByteCount bytes_ = 0;
  base::ByteCount records_ = 0;
};

/// Lower-case hex SHA-256 over allocations (in slot order, numbered by rank) and metadata (in byte
/// order of the keys), as gms-protocol(7) spells it out. It covers the layout, not the data.
std::string layout_hash(const Layout& layout);

}  // namespace fo::gms
