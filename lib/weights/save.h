// Saves a published layout to a snapshot directory.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/units.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "gms/protocol/types.h"
#include "weights/snapshot/snapshot_folder.h"

namespace fo::weights {

struct SaveOptions {
  std::string folder;
  Replace replace = Replace::kNo;
  /// Argument of gms::RpcClient::connect.
  std::optional<uid_t> server_uid;
  /// The limit for the lock, and for the server's socket; without a limit, the socket must exist at
  /// once.
  std::optional<base::Duration> timeout;
  /// Arguments of lane_config().
  std::size_t copy_threads = 0;
  std::optional<base::ByteCount> ring;
  /// Called by the saving thread before anything is written, from time to time while bytes are
  /// written, and before the snapshot is moved to its place. An exception ends the save and removes
  /// everything.
  std::function<void(base::ByteCount done, base::ByteCount total)> on_progress;
};

struct SaveReport {
  /// Total size of the allocations.
  base::ByteCount bytes = 0;
  /// From the grant until the snapshot is in its place and on the disk.
  double seconds = 0;
  std::size_t tensors = 0;
  std::size_t allocations = 0;
  std::size_t shards = 0;
  gms::LayoutHash memory_layout_hash;
};

/// Saves the published layout as a reader: writers wait until its bytes are copied. nullopt if the
/// lock was not granted in time. The previous content of the folder is unchanged if anything except
/// the last flush fails, or this process is killed. Throws what RpcClient and SnapshotFolder throw;
/// kIoError for failed writes; kBadData for a layout that a snapshot cannot represent; kUsage for a
/// ring of 0 on a real device.
std::optional<SaveReport> save(const std::shared_ptr<const cuda::Driver>& driver,
                               const cuda::DeviceInfo& device, const std::string& socket_path,
                               const SaveOptions& options);

/// Format the report as text, and as one JSON object.
std::string format_text(const SaveReport& report);
std::string format_json(const SaveReport& report);

}  // namespace fo::weights
