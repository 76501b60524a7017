// A snapshot directory, opened and checked as a whole before a byte of a shard is read.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gms/protocol/types.h"
#include "weights/snapshot_manifest.h"
#include "weights/weight_file.h"

namespace fo::weights {

struct Snapshot {
  SnapshotManifest manifest;
  gms::Metadata metadata;
  /// In the order in which the manifest first names them.
  std::vector<WeightFile> files;
  /// Which of the files, for each allocation.
  std::vector<std::size_t> file_of;
  /// For each file, the SHA-256 that it must have; empty where there is nothing to check.
  std::vector<std::string> checksums;
};

enum class Checksums { kCheck, kIgnore };

/// Errors: kNoInput for what is absent, a manifest above all, without which a snapshot is not
/// complete; kBadData, naming the file, for what the parsers refuse, a shard that lies outside the
/// folder or is anything but the allocations' bytes packed front to back, a layout hash that
/// manifest and metadata do not give, and a manifest or metadata that differ from their checksums,
/// or shards that have none. Without a checksum file, as other writers leave it, a warning is
/// logged.
Snapshot open_snapshot(const std::string& folder, Checksums checksums);

}  // namespace fo::weights
