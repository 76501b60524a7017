// What gms-lockd knows of its lock across its own death: the state file, and which of the processes
// named in it still run. Who gets the lock is for lock::LockdModel.
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
  /// Nobody: nullopt, and then there are no connections or processes.
  std::optional<std::string> holder = std::nullopt;
  /// Without a holder: who had the lock last, as far as that is known.
  std::optional<std::string> last_holder = std::nullopt;
  /// Of the generation, where there is a holder or a last one.
  text::WallTime granted_at = {};
  /// Of the holder, or of the last one; 0 before the first grant, and for a holder of unknown
  /// generation.
  std::uint64_t generation = 0;
  /// The highest that was ever given away or claimed, where that is another one.
  std::uint64_t last_generation = 0;
  /// How many connections the holder has, those of processes not visible here included; nullopt
  /// where that is not known.
  std::optional<std::size_t> connections = std::nullopt;
  std::vector<RecordedProcess> processes = {};
  /// For how long after that server's end the holder's leases may last; nullopt where it gave none.
  std::optional<std::chrono::milliseconds> expiry = std::nullopt;
  /// That a claim over TCP of this generation has to give back; empty for one that no lease holds.
  std::string token = {};
  friend bool operator==(const LockdState&, const LockdState&) = default;
};

/// One JSON object and a newline.
std::string encode_state(const LockdState& state);

/// Also reads what has no more than a holder and granted_at, that to the second. Nullopt for what
/// is not such a file.
std::optional<LockdState> decode_state(std::string_view bytes);

struct LoadedState {
  enum class Kind { kNone, kState, kDamaged };
  Kind kind = Kind::kNone;
  LockdState state = {};
  /// What was read, unless it was too much.
  std::string bytes = {};
};

/// Throws Error when there is a file that can't be opened or read.
LoadedState load_state(const std::string& path);

/// Replaces the file, which is for its owner's eyes. Throws write_file_atomic's errors.
void write_state(const std::string& path, const std::string& bytes);

/// Makes sure that the state can be recorded, by writing what was loaded. Removes the temporaries
/// that write_file_atomic left beside the file where it was killed; for whoever has the file's
/// lock. Throws write_file_atomic's errors.
void prepare_state(const std::string& path, const LoadedState& loaded);

/// Of a visible peer; nullopt for pid 0 (another pid namespace) and for one that has ended.
std::optional<RecordedProcess> describe_process(pid_t pid);

/// The pidfd of a recorded process that is visible from here and runs; nullopt otherwise.
std::optional<base::UniqueFd> open_running(const RecordedProcess& process);

}  // namespace fo::lock
