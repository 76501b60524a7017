// The field's words as types: what may be asked for, what is granted, what a server holds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/strong.h"

namespace fo::gms {

/// What a client asks for in its handshake.
enum class LockType { kRw, kRo, kRwOrRo, kRwDataOrRw };

/// What a client was granted. kRwData holds the one writer's place but may only do what readers do.
enum class Grant { kRw, kRo, kRwData };

/// A server's state, derived from who is connected and what is published or sealed.
enum class ServerState { kEmpty, kLayoutCommitted, kCommitted, kRo, kRw };

/// The protocol's spellings.
std::string_view to_string(LockType type);
std::string_view to_string(Grant grant);
std::string_view to_string(ServerState state);
std::optional<LockType> parse_lock_type(std::string_view text);
std::optional<Grant> parse_grant(std::string_view text);

/// Whether `text` is 64 lower-case hex digits, as any SHA-256 is.
bool is_layout_hash(std::string_view text);

/// One allocation of a layout, as every answer that speaks of one shows it.
struct Allocation {
  std::string allocation_id;
  base::ByteCount size = 0;
  base::ByteCount aligned_size = 0;
  std::string tag;
  std::uint64_t layout_slot = 0;

  friend bool operator==(const Allocation&, const Allocation&) = default;
};

/// Where in which allocation a key points, and the bytes kept with it.
struct MetadataEntry {
  std::string allocation_id;
  base::ByteCount offset_bytes = 0;
  std::string value;

  friend bool operator==(const MetadataEntry&, const MetadataEntry&) = default;
};

/// In byte order of the keys.
using Metadata = std::map<std::string, MetadataEntry, std::less<>>;

}  // namespace fo::gms
