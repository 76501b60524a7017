// The protocol's terms as types: lock types, grants, server states, allocations.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/strong.h"

namespace fo::gms {

/// The protocol's name of an allocation.
using AllocationId = base::Strong<struct AllocationIdTag, std::string>;

/// The hash of a layout as text. A peer may send any text; is_layout_hash() checks it.
using LayoutHash = base::Strong<struct LayoutHashTag, std::string>;

/// The lock that a client requests in its handshake.
enum class LockType { kRw, kRo, kRwOrRo, kRwDataOrRw };

/// The lock that a client was granted. kRwData occupies the writer's place but allows only what
/// readers may do.
enum class Grant { kRw, kRo, kRwData };

/// A server's state, derived from its clients and its layout.
enum class ServerState { kEmpty, kLayoutCommitted, kCommitted, kRo, kRw };

/// The protocol's spellings.
std::string_view to_string(LockType type);
std::string_view to_string(Grant grant);
std::string_view to_string(ServerState state);
std::optional<LockType> parse_lock_type(std::string_view text);
std::optional<Grant> parse_grant(std::string_view text);

/// Whether `text` is 64 lower-case hex digits, like a SHA-256.
bool is_layout_hash(std::string_view text);

/// One allocation of a layout, as responses show it.
struct Allocation {
  AllocationId allocation_id;
  base::ByteCount size = 0;
  base::ByteCount aligned_size = 0;
  std::string tag;
  std::uint64_t layout_slot = 0;

  friend bool operator==(const Allocation&, const Allocation&) = default;
};

/// The allocation and offset that a key refers to, and its value.
struct MetadataEntry {
  AllocationId allocation_id;
  base::ByteCount offset_bytes = 0;
  std::string value;

  friend bool operator==(const MetadataEntry&, const MetadataEntry&) = default;
};

/// In byte order of the keys.
using Metadata = std::map<std::string, MetadataEntry, std::less<>>;

}  // namespace fo::gms
