// Loads weights into a GMS: publishes a model or a snapshot as the writer, or imports a published
// layout as a reader.
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
#include "weights/file/model.h"
#include "weights/snapshot/snapshot.h"

namespace fo::weights {

struct LoadOptions {
  /// Argument of open_model; empty for a snapshot.
  std::string model;
  /// Argument of open_snapshot; empty for a model. With a snapshot, `slab` and `pin_content` are
  /// ignored.
  std::string snapshot;
  Checksums checksums = Checksums::kCheck;
  /// Skip the extra read of the snapshot's files with which a writer detects a wrong checksum
  /// before it drops a published layout.
  bool replace_first = false;
  /// kRw replaces a published layout, kRwOrRo publishes only if there is none, kRo imports.
  gms::LockType role = gms::LockType::kRwOrRo;
  /// Argument of gms::RpcClient::connect.
  std::optional<uid_t> server_uid;
  /// The limit for the lock, and for the server's socket; without a limit, the socket must exist at
  /// once.
  std::optional<base::Duration> timeout;
  base::ByteCount slab = base::kGiB;
  /// Arguments of lane_config().
  std::size_t copy_threads = 0;
  std::optional<base::ByteCount> ring;
  /// Compares device memory with the files; the writer does so before it publishes.
  bool verify = false;
  /// Adds each tensor's SHA-256 to its metadata, and so to the layout's hash.
  bool pin_content = false;
  /// Called by the loading thread from time to time while bytes are loaded, and at their end.
  std::function<void(base::ByteCount done, base::ByteCount total)> on_progress;
};

struct LoadReport {
  /// Size of the tensors; of the allocations if a snapshot was published.
  base::ByteCount bytes = 0;
  /// From the grant until the layout is published or imported.
  double seconds = 0;
  std::size_t tensors = 0;
  std::size_t allocations = 0;
  gms::LayoutHash memory_layout_hash;
  gms::Grant granted_lock_type = gms::Grant::kRo;
};

/// The role for $ENGINE_ID: kRwOrRo for 0 or unset, kRo for a higher number. Throws Error(kConfig)
/// if it is not a number.
gms::LockType role_from_env();

/// The source of a load, opened and checked except for the bytes of the weights.
struct LoadSource {
  /// The name of the model or the snapshot for messages; empty for a reader without a source.
  std::string name;
  /// Only one of the two is used.
  Model model;
  std::optional<Snapshot> snapshot;
};

/// Opens the source that the options name. Throws what open_model and open_snapshot throw.
LoadSource open_source(const LoadOptions& options);

/// Publishes or imports, according to the role; nullopt if the lock was not granted in time. If the
/// model or snapshot is invalid, does not fit the device, or has a wrong checksum (but see
/// replace_first), nothing is published and a published layout is kept; after a later failure
/// nothing is published. A reader compares the names, types and shapes of the tensors, and reads
/// their bytes only to verify. Throws what RpcClient throws; kTryAgain if the device is out of
/// memory; kUsage for a ring of 0 on a real device; kBadData for a shard with a wrong checksum, for
/// a snapshot whose layout hash is not reproduced, and for a reader that finds other tensors than
/// the source's; if `verify` finds other bytes in device memory, kSoftware for a writer, kBadData
/// for a reader.
std::optional<LoadReport> load(LoadSource source, const std::shared_ptr<const cuda::Driver>& driver,
                               const cuda::DeviceInfo& device, const std::string& socket_path,
                               const LoadOptions& options);

/// Format the report as text, and as one JSON object.
std::string format_text(const LoadReport& report);
std::string format_json(const LoadReport& report);

}  // namespace fo::weights
