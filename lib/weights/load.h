// Weights into a GMS: publishes a model or a snapshot as the writer, or imports as a reader what
// another writer published.
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
#include "weights/model.h"
#include "weights/snapshot.h"

namespace fo::weights {

struct LoadOptions {
  /// As open_model takes it; empty for a snapshot.
  std::string model;
  /// As open_snapshot takes it; empty for a model. What follows from a model only, `slab` and
  /// `pin_content`, counts for nothing then.
  std::string snapshot;
  Checksums checksums = Checksums::kCheck;
  /// Of a writer that replaces something: don't read the snapshot's files once more, to find a
  /// wrong checksum before that is dropped.
  bool replace_first = false;
  /// kRw replaces what is published, kRwOrRo publishes only where nothing is, kRo imports.
  gms::LockType role = gms::LockType::kRwOrRo;
  /// As gms::RpcClient::connect takes it.
  std::optional<uid_t> server_uid;
  /// For the lock; and for the server's socket, which must be there at once where there is no
  /// limit.
  std::optional<base::Duration> timeout;
  base::ByteCount slab = base::kGiB;
  /// As lane_config() takes them.
  std::size_t copy_threads = 0;
  std::optional<base::ByteCount> ring;
  /// Compares device memory with the files, as the writer before anything is published.
  bool verify = false;
  /// Adds each tensor's SHA-256 to its metadata, and so to the layout's hash.
  bool pin_content = false;
  /// Called by the loading thread now and then while bytes are loaded, and at their end.
  std::function<void(base::ByteCount done, base::ByteCount total)> on_progress;
};

struct LoadReport {
  /// Of the tensors; of the allocations where a snapshot was published.
  base::ByteCount bytes = 0;
  /// From the grant on: until the layout is published, or imported.
  double seconds = 0;
  std::size_t tensors = 0;
  std::size_t allocations = 0;
  std::string memory_layout_hash;
  gms::Grant granted_lock_type = gms::Grant::kRo;
};

/// The role that $ENGINE_ID stands for: kRwOrRo for 0 or where it is unset, kRo for more. Throws
/// Error(kConfig) for what is not a number.
gms::LockType role_from_env();

/// What is to be loaded, opened and checked, but for the bytes of the weights.
struct LoadSource {
  /// Of the model or the snapshot, for messages; empty for nothing, which a reader may have.
  std::string name;
  /// One of the two.
  Model model;
  std::optional<Snapshot> snapshot;
};

/// Opens what the options name. Errors: those of open_model and open_snapshot.
LoadSource open_source(const LoadOptions& options);

/// Publishes or imports, for the role asked for; nullopt when the lock was not to be had in time.
/// Nothing is published, and nothing that was published dropped, for a model or snapshot that is
/// refused or does not fit the device, and for a snapshot with a wrong checksum (but see
/// replace_first); nothing is published when anything fails later. A reader compares the names,
/// types and shapes of the tensors, and reads the bytes only to verify.
/// Errors: those of RpcClient; kTryAgain for what the device has no room for; kUsage for a ring of
/// 0 on a real device; kBadData for a shard with another checksum, for a snapshot whose layout hash
/// does not come back, and for a reader that finds other tensors than the source's; kSoftware when
/// the writer verifies and finds other bytes in device memory, kBadData when a reader does.
std::optional<LoadReport> load(LoadSource source, const std::shared_ptr<const cuda::Driver>& driver,
                               const cuda::DeviceInfo& device, const std::string& socket_path,
                               const LoadOptions& options);

/// For people, and as one JSON object.
std::string format_text(const LoadReport& report);
std::string format_json(const LoadReport& report);

}  // namespace fo::weights
