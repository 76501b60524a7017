// The text files of a snapshot directory, as gms-protocol(7) specifies them: manifest.json (the
// allocations and their positions), gms_metadata.json, and the checksums. Pure: bytes in, records
// out, and back. Unknown keys are skipped, because other writers add some; known ones must be
// valid.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"
#include "gms/protocol/layout.h"
#include "gms/protocol/types.h"

namespace fo::weights {

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kMetadataFile = "gms_metadata.json";
inline constexpr const char* kChecksumFile = "checksums.sha256";

/// Maximum size of each file.
inline constexpr base::ByteCount kMaxManifest = 100'000'000;
inline constexpr base::ByteCount kMaxSnapshotMetadata = 512 * base::kMiB;
inline constexpr base::ByteCount kMaxChecksums = 100'000'000;
/// More allocations of 2 MiB than fit on any device.
inline constexpr std::size_t kMaxSnapshotAllocations = 1u << 18;
/// Maximum length of an id, a tag or a file's path.
inline constexpr std::size_t kMaxSnapshotName = 4096;

struct SnapshotAllocation {
  gms::AllocationId allocation_id;
  base::ByteCount size = 0;
  base::ByteCount aligned_size = 0;
  std::string tag;
  /// Relative to the snapshot's folder, and inside it.
  std::string tensor_file;
  /// Offset of its `aligned_size` bytes in the file.
  base::ByteCount tensor_offset = 0;

  friend bool operator==(const SnapshotAllocation&, const SnapshotAllocation&) = default;
};

struct SnapshotManifest {
  gms::LayoutHash layout_hash;
  /// Ordered by layout slot. Ids are unique, bytes in files do not overlap, and the total size is
  /// under 2^63 bytes.
  std::vector<SnapshotAllocation> allocations;
};

/// Sets file and offset of every allocation: packed into shards/shard_0000.bin and so on, with a
/// new shard where one would exceed 4 GiB.
void place_in_shards(SnapshotManifest& manifest);

/// `file` is a name for messages, here and below. Throws Error(kBadData):
/// "read 'file': allocation N: reason".
SnapshotManifest parse_manifest(std::string_view text, const std::string& file);
/// `timestamp` is in seconds since 1970; `device` is the one that the layout was saved from. Throws
/// Error(kBadData) for a text that is not UTF-8, as does format_snapshot_metadata.
std::string format_manifest(const SnapshotManifest& manifest, double timestamp,
                            base::DeviceOrdinal device);

/// Every entry must refer to an allocation of the manifest. Throws Error(kBadData): "read 'file':
/// key 'name': reason".
gms::Metadata parse_snapshot_metadata(std::string_view text, const SnapshotManifest& manifest,
                                      const std::string& file);
std::string format_snapshot_metadata(const gms::Metadata& metadata);

/// The layout of manifest and metadata, with slots numbered from 0.
gms::Layout layout_of(const SnapshotManifest& manifest, const gms::Metadata& metadata);
/// The keys must refer to allocations of the layout.
void put_all(gms::Layout& layout, const gms::Metadata& metadata);

/// The hex SHA-256 of a text.
std::string checksum_of(std::string_view text);
/// Hex SHA-256 by file name, from lines in the format of sha256sum(1). Throws Error(kBadData) for
/// any other line, a duplicate name, and a name outside the folder.
std::map<std::string, std::string> parse_checksums(std::string_view text, const std::string& file);
std::string format_checksums(const std::map<std::string, std::string>& checksums);

}  // namespace fo::weights
