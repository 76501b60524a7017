// The text files of a snapshot directory, as gms-protocol(7) spells them: manifest.json (what the
// layout is made of and where its bytes lie), gms_metadata.json, and the checksums beside them.
// Pure: bytes in, records out, and back. Keys that aren't known are passed over, as other writers
// have some; what is known must be right.
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

/// The most bytes that each of the files may have.
inline constexpr base::ByteCount kMaxManifest = 100'000'000;
inline constexpr base::ByteCount kMaxSnapshotMetadata = 512 * base::kMiB;
inline constexpr base::ByteCount kMaxChecksums = 100'000'000;
/// Of 2 MiB each, these are more than any device has.
inline constexpr std::size_t kMaxSnapshotAllocations = 1u << 18;
/// Of an id, a tag or a file's path.
inline constexpr std::size_t kMaxSnapshotName = 4096;

struct SnapshotAllocation {
  std::string allocation_id;
  base::ByteCount size = 0;
  base::ByteCount aligned_size = 0;
  std::string tag;
  /// Relative to the snapshot's folder, which it doesn't leave.
  std::string tensor_file;
  /// Where in the file its `aligned_size` bytes begin.
  base::ByteCount tensor_offset = 0;

  friend bool operator==(const SnapshotAllocation&, const SnapshotAllocation&) = default;
};

struct SnapshotManifest {
  std::string layout_hash;
  /// By layout slot. Ids differ; no two share bytes of a file; all together are under 2^63 bytes.
  std::vector<SnapshotAllocation> allocations;
};

/// Sets file and offset of every allocation: packed front to back into shards/shard_0000.bin and so
/// on, a new one wherever a shard would come to be longer than 4 GiB.
void place_in_shards(SnapshotManifest& manifest);

/// `file` is a name for messages, here and below. Throws Error(kBadData):
/// "read 'file': allocation N: reason".
SnapshotManifest parse_manifest(std::string_view text, const std::string& file);
/// `timestamp`: seconds since 1970. `device`: the ordinal that it was saved from.
std::string format_manifest(const SnapshotManifest& manifest, double timestamp, int device);

/// Every entry points into one of the manifest's allocations. Throws Error(kBadData):
/// "read 'file': key 'name': reason".
gms::Metadata parse_snapshot_metadata(std::string_view text, const SnapshotManifest& manifest,
                                      const std::string& file);
std::string format_snapshot_metadata(const gms::Metadata& metadata);

/// What manifest and metadata describe, its slots counted from 0.
gms::Layout layout_of(const SnapshotManifest& manifest, const gms::Metadata& metadata);
/// Keys that point into allocations that the layout has.
void put_all(gms::Layout& layout, const gms::Metadata& metadata);

/// The hex SHA-256 of a text.
std::string checksum_of(std::string_view text);
/// Hex SHA-256 by file name, from lines as sha256sum(1) writes and reads them. Throws
/// Error(kBadData) for any other line, a name twice, and a name that leaves the folder.
std::map<std::string, std::string> parse_checksums(std::string_view text, const std::string& file);
std::string format_checksums(const std::map<std::string, std::string>& checksums);

}  // namespace fo::weights
