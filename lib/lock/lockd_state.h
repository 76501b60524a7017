// What gms-lockd knows of its lock across its own death: the state file, and which of the processes
// named in it still run. Who gets the lock is for lock::LockdModel.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "lock/lockd_protocol.h"

namespace fo::lock {

/// A process as the server saw it: pid and start time in this pid namespace.
struct RecordedProcess {
  pid_t pid = 0;
  std::uint64_t start_time = 0;
  std::uint64_t pid_ns = 0;
  friend bool operator==(const RecordedProcess&, const RecordedProcess&) = default;
};

struct LockdState {
  /// Nobody: nullopt, and then the rest but the generations is without meaning.
  std::optional<std::string> holder = std::nullopt;
  WallTime granted_at = {};
  /// Of the holder, or of the last one; 0 before the first grant.
  std::uint64_t generation = 0;
  /// The highest that was ever given away, where a holder with a lower one came back after the file
  /// was damaged.
  std::uint64_t last_generation = 0;
  /// How many connections the holder has, those of processes not visible here included.
  std::size_t connections = 0;
  std::vector<RecordedProcess> processes = {};
  friend bool operator==(const LockdState&, const LockdState&) = default;
};

/// One JSON object and a newline.
std::string encode_state(const LockdState& state);

/// Nullopt for what is not exactly such a file.
std::optional<LockdState> decode_state(std::string_view bytes);

struct LoadedState {
  enum class Kind { kNone, kState, kDamaged };
  Kind kind = Kind::kNone;
  LockdState state = {};
};

/// Throws Error when there is a file that can't be opened or read.
LoadedState load_state(const std::string& path);

/// Of a visible peer; nullopt for pid 0 (another pid namespace) and for one that has ended.
std::optional<RecordedProcess> describe_process(pid_t pid);

/// The pidfd of a recorded process that is visible from here and runs; nullopt otherwise.
std::optional<base::UniqueFd> open_running(const RecordedProcess& process);

}  // namespace fo::lock
