// The record of a grant: the file beside a lock file, its holder, and the next generation. Pure,
// except for the check whether a recorded process runs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/unique_fd.h"

namespace fo::lock {

/// The maximum; JSON readers that only have doubles still read it exactly.
inline constexpr std::uint64_t kMaxGeneration = 1ULL << 53;
/// Maximum length of an id.
inline constexpr std::size_t kMaxIdBytes = 255;
/// The size of a grant file, whatever its record.
inline constexpr std::size_t kGrantFileSize = 1024;

struct GrantRecord {
  std::string holder;
  std::uint64_t generation = 0;
  /// The process that acquired the lock, in its pid namespace (identified by the inode).
  pid_t pid = 0;
  std::uint64_t pid_ns = 0;
  /// Its os::process_start_time.
  std::uint64_t start_time = 0;
  /// Inode of the lock file that was locked.
  std::uint64_t inode = 0;
  /// In the format of text::format_time.
  std::string granted_at;
  std::string host;
  friend bool operator==(const GrantRecord&, const GrantRecord&) = default;
};

/// Throws Error(kConfig) unless `id` is 1 to kMaxIdBytes bytes of UTF-8 without control
/// characters.
void check_lock_id(std::string_view id);

/// `engine-<ENGINE_ID>`, where a missing ENGINE_ID is 0. Throws Error(kConfig) if it is not a
/// number.
std::string lock_id_from_environment();

/// kGrantFileSize bytes: one JSON object, spaces, a newline. Throws Error(kSoftware) if it does not
/// fit, which cannot happen for ids that check_lock_id accepts.
std::string encode_grant(const GrantRecord& record);

/// The content of a grant file.
struct GrantContent {
  enum class Kind { kBlank, kRecord, kDamaged };
  Kind kind = Kind::kBlank;
  GrantRecord record;
};
/// A file that is empty, or contains only NULs and spaces, is blank (prepared, never written).
/// Anything but a record with a generation from 1 to kMaxGeneration is damaged.
GrantContent decode_grant(std::string_view bytes);

/// Whether a file with this content may be a lock file: it is blank, or has one line that can be an
/// id. A line that begins like a JSON object or list must be the name of the holder in `record`,
/// the content of the grant file; the end of a longer id may follow it.
bool can_be_lock_file(std::string_view content, const GrantContent& record);

/// The generation of the next grant: the recorded one plus 1; 1 if there is neither a record nor a
/// holder's name in the lock file. If the record is unreadable, the milliseconds since 1970, which
/// are higher than any counted generation, so that no generation repeats.
std::uint64_t next_generation(const GrantContent& previous, bool lock_file_is_empty,
                              std::chrono::system_clock::time_point now);

/// The pidfd of the process with this pid and start time (os::process_start_time); nullopt if there
/// is none, or if it ends before `deadline`.
std::optional<base::UniqueFd> open_running(pid_t pid, std::uint64_t start_time,
                                           const base::Deadline& deadline);

/// Whether the recorded process still runs, after waiting until `deadline` for its end.
enum class HolderState { kNotVisible, kRunning, kEnded };
HolderState holder_state(const GrantRecord& record, const base::Deadline& deadline);

/// The id in a lock file: its first line without control characters, at most kMaxIdBytes.
std::string id_of_lock_file(std::string_view content);

}  // namespace fo::lock
