// A published layout, written to a snapshot directory.
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
#include "weights/snapshot_folder.h"

namespace fo::weights {

struct SaveOptions {
  std::string folder;
  Replace replace = Replace::kNo;
  /// As gms::RpcClient::connect takes it.
  std::optional<uid_t> server_uid;
  /// For the lock; and for the server's socket, which must be there at once where there is no
  /// limit.
  std::optional<base::Duration> timeout;
  /// As lane_config() takes them.
  std::size_t copy_threads = 0;
  std::optional<base::ByteCount> ring;
  /// Called by the saving thread before anything is written, then now and then while bytes are, and
  /// before the snapshot takes its place. What it throws ends the save, and nothing is left of it.
  std::function<void(base::ByteCount done, base::ByteCount total)> on_progress;
};

struct SaveReport {
  /// Of the allocations.
  base::ByteCount bytes = 0;
  /// From the grant on, until the snapshot is in its place and on the disk.
  double seconds = 0;
  std::size_t tensors = 0;
  std::size_t allocations = 0;
  std::size_t shards = 0;
  std::string memory_layout_hash;
};

/// Saves what is published, as a reader: writers wait until its bytes are copied. nullopt when the
/// lock was not to be had in time. Whatever fails but the last flush, and wherever this process is
/// killed, what was in the folder's place before is there as it was. Errors: those of RpcClient and
/// SnapshotFolder; kIoError for what can't be written; kBadData for a layout that a snapshot can't
/// say; kUsage for a ring of 0 on a real device.
std::optional<SaveReport> save(const std::shared_ptr<const cuda::Driver>& driver,
                               const cuda::DeviceInfo& device, const std::string& socket_path,
                               const SaveOptions& options);

/// For people, and as one JSON object.
std::string format_text(const SaveReport& report);
std::string format_json(const SaveReport& report);

}  // namespace fo::weights
