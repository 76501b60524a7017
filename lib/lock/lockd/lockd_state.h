// The state of gms-lockd's lock that survives the server: the state file, and which of its
// processes still run. lock::LockdModel decides about the lock.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "lock/lockd/lockd_protocol.h"
#include "text/time_text.h"

namespace fo::lock {

/// A process as the server saw it: pid and start time in this pid namespace.
struct RecordedProcess {
  pid_t pid = 0;
  std::uint64_t start_time = 0;
  std::uint64_t pid_ns = 0;
  friend auto operator<=>(const RecordedProcess&, const RecordedProcess&) = default;
};

struct LockdState {
  /// nullopt if the lock is free; then there are no connections or processes.
  std::optional<std::string> holder = std::nullopt;
  /// If the lock is free: the last holder, if known.
  std::optional<std::string> last_holder = std::nullopt;
  /// The time of that grant, if there is a holder or a last one.
  text::WallTime granted_at = {};
  /// The generation of the holder or the last one; 0 before the first grant, and for a holder of
  /// unknown generation.
  std::uint64_t generation = 0;
  /// The highest generation that was granted or claimed, if it differs.
  std::uint64_t last_generation = 0;
  /// The number of the holder's connections, including those of processes that are not visible
  /// here; nullopt if it is unknown.
  std::optional<std::size_t> connections = std::nullopt;
  std::vector<RecordedProcess> processes = {};
  /// Time for which the holder's leases may last after that server's end; nullopt if it granted
  /// none.
  std::optional<std::chrono::milliseconds> expiry = std::nullopt;
  /// The token for a claim of this generation over TCP; empty if it is not held by a lease.
  std::string token = {};
  friend bool operator==(const LockdState&, const LockdState&) = default;
};

/// One JSON object and a newline.
std::string encode_state(const LockdState& state);

/// Also accepts files with only a holder and granted_at (to the second). nullopt for anything else.
std::optional<LockdState> decode_state(std::string_view bytes);

struct LoadedState {
  enum class Kind { kNone, kState, kDamaged };
  Kind kind = Kind::kNone;
  LockdState state = {};
  /// The bytes that were read, unless there were too many.
  std::string bytes = {};
};

/// Throws Error if the file exists and cannot be opened or read.
LoadedState load_state(const std::string& path);

/// Replaces the file, which only its owner may read. Throws write_file_atomic's errors.
void write_state(const std::string& path, const std::string& bytes);

/// Checks that the state can be recorded, by writing the loaded state. Removes temporary files that
/// a killed write_file_atomic left. Requires the file's lock. Throws write_file_atomic's errors.
void prepare_state(const std::string& path, const LoadedState& loaded);

/// For a visible peer; nullopt for pid 0 (another pid namespace) and for a process that has ended.
std::optional<RecordedProcess> describe_process(pid_t pid);

/// The pidfd of a recorded process that is visible and runs; else nullopt.
std::optional<base::UniqueFd> open_running(const RecordedProcess& process);

}  // namespace fo::lock
