// Checks whether a sleeping engine could wake on the current layout of a GMS: the check, its
// output, and the file of expected hashes from an earlier run. It needs no CUDA: the private helper
// fo-gpu (map_check.h) maps and reads.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/strong.h"
#include "gms/client/remap_outcome.h"
#include "gms/protocol/types.h"

namespace fo::gms {

struct RemapCheckRequest {
  std::string socket;
  /// Argument of RpcClient::connect.
  std::optional<uid_t> server_uid;
  /// The expected hash; a layout with another hash is stale. Empty: any layout is accepted.
  LayoutHash expect_hash;
  /// Map every allocation on this device, and read through the mapping.
  bool map = false;
  base::DeviceOrdinal device;
  /// The driver for the helper, as cuda::Driver::open takes it; empty: from the environment.
  std::string driver;
};

struct RemapCheck {
  std::string socket;
  RemapOutcome outcome;
  /// The values found so far.
  LayoutHash memory_layout_hash;
  std::size_t allocation_count = 0;
  base::ByteCount bytes = 0;
  bool mapped = false;
  base::Duration took{};
};

/// Requests a reader's lock, checks the layout and, if requested, maps it. `deadline` covers
/// everything. A missing or lost server, a timeout and another layout are outcomes; any other
/// failure (the peer's protocol, the GPU) throws Error.
RemapCheck check_remap(const RemapCheckRequest& request, const base::Deadline& deadline);

/// kOk, kBadData for a stale layout, kTryAgain, kUnavailable.
base::ExitStatus exit_status(RemapResult result);
/// The result for a helper's exit status; nullopt for any other failure.
std::optional<RemapResult> parse_exit_status(int status);

/// One object on one line.
std::string to_json(const RemapCheck& check);
/// One line for a successful check.
std::string to_text(const RemapCheck& check);

/// A hash file has one hash per line, in the order of the sockets. Throws Error: kNoInput if it is
/// missing, kBadData for other content or another number of hashes than `count`.
std::vector<LayoutHash> read_hash_file(const std::string& path, std::size_t count);
/// Replaces the file atomically.
void write_hash_file(const std::string& path, const std::vector<LayoutHash>& hashes);

}  // namespace fo::gms
