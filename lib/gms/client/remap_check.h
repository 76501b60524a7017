// Could an engine that sleeps wake on what a GMS holds now? The check, its outcome on paper, and
// the file in which an earlier run left the hashes to expect. Needs no CUDA: what needs the driver,
// mapping and reading, is done by the private helper fo-gpu (map_check.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "gms/client/remap_outcome.h"
#include "gms/protocol/types.h"

namespace fo::gms {

struct RemapCheckRequest {
  std::string socket;
  /// As RpcClient::connect takes it.
  std::optional<uid_t> server_uid;
  /// Another layout than this is a stale one; empty: any layout will do.
  std::string expect_hash;
  /// Map every allocation, on this device, and read through the mapping.
  bool map = false;
  int device = 0;
  /// For the helper, as cuda::Driver::open takes it; empty: as the environment says.
  std::string driver;
};

struct RemapCheck {
  std::string socket;
  RemapOutcome outcome;
  /// What was found, as far as the check came.
  std::string memory_layout_hash;
  std::size_t allocation_count = 0;
  base::ByteCount bytes = 0;
  bool mapped = false;
  base::Duration took{};
};

/// Asks for a reader's lock, looks at the layout and, where asked for, has it mapped. `deadline`
/// covers everything. A server that is not there or goes away, a time that passes and another
/// layout are outcomes; anything else that fails (the peer's protocol, the GPU) throws Error.
RemapCheck check_remap(const RemapCheckRequest& request, const base::Deadline& deadline);

/// kOk, kBadData for a stale layout, kTryAgain, kUnavailable.
base::ExitStatus exit_status(RemapResult result);
/// The result that a helper's exit status stands for; nullopt for a failure of another kind.
std::optional<RemapResult> parse_exit_status(int status);

/// One object on one line.
std::string to_json(const RemapCheck& check);
/// One line for people, of a check that ended well.
std::string to_text(const RemapCheck& check);

/// A hash file has one hash a line, in the order of the sockets. Throws Error: kNoInput when it is
/// absent, kBadData when it holds anything else or another number than `count`.
std::vector<std::string> read_hash_file(const std::string& path, std::size_t count);
/// Replaces the file in one step.
void write_hash_file(const std::string& path, const std::vector<std::string>& hashes);

}  // namespace fo::gms
