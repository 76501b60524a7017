// A snapshot directory, opened and checked completely before a byte of a shard is read.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gms/protocol/types.h"
#include "weights/file/weight_file.h"
#include "weights/snapshot/snapshot_manifest.h"

namespace fo::weights {

struct Snapshot {
  SnapshotManifest manifest;
  gms::Metadata metadata;
  /// In the order in which the manifest first names them.
  std::vector<WeightFile> files;
  /// For each allocation, the index of its file.
  std::vector<std::size_t> file_of;
  /// For each file, its expected SHA-256; empty if checksums are not verified.
  std::vector<std::string> checksums;
};

enum class Checksums { kCheck, kIgnore };

/// Throws kNoInput for missing files (without a manifest, a snapshot is not complete), and
/// kBadData, with the file, for what the parsers refuse, a shard that lies outside the folder or is
/// not exactly the packed bytes of its allocations, a layout hash that does not match manifest and
/// metadata, a manifest or metadata with wrong checksums, and shards without one. If there is no
/// checksum file, because another program wrote the snapshot, a warning is logged.
Snapshot open_snapshot(const std::string& folder, Checksums checksums);

}  // namespace fo::weights
