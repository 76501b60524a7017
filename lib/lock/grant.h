// The record of a grant: what is kept beside a lock file, who is named in it, and which generation
// follows it. Pure but for the look at whether a recorded process lives.
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

/// The highest: JSON readers that know only doubles still read it exactly.
inline constexpr std::uint64_t kMaxGeneration = 1ULL << 53;
/// The most bytes an id may have.
inline constexpr std::size_t kMaxIdBytes = 255;
/// The size of a grant file, whatever is recorded in it.
inline constexpr std::size_t kGrantFileSize = 1024;

struct GrantRecord {
  std::string holder;
  std::uint64_t generation = 0;
  /// Of the process that took the lock, as its pid namespace (the namespace's inode) sees it.
  pid_t pid = 0;
  std::uint64_t pid_ns = 0;
  /// os::process_start_time of it.
  std::uint64_t start_time = 0;
  /// Of the lock file that was locked.
  std::uint64_t inode = 0;
  /// As text::format_time writes it.
  std::string granted_at;
  std::string host;
  friend bool operator==(const GrantRecord&, const GrantRecord&) = default;
};

/// Throws Error(kConfig) unless `id` is 1 to kMaxIdBytes bytes of UTF-8 without control
/// characters.
void check_lock_id(std::string_view id);

/// `engine-<ENGINE_ID>`, where an absent ENGINE_ID is 0. Throws Error(kConfig) for one that is not
/// a number.
std::string lock_id_from_environment();

/// kGrantFileSize bytes: one JSON object, spaces, a newline. Throws Error(kSoftware) when that is
/// too little, which it is not for any id that check_lock_id accepts.
std::string encode_grant(const GrantRecord& record);

/// What a grant file says.
struct GrantContent {
  enum class Kind { kBlank, kRecord, kDamaged };
  Kind kind = Kind::kBlank;
  GrantRecord record;
};
/// Empty or nothing but NULs and spaces is blank (a file that was only made ready); what is not
/// exactly a record with a generation of 1 to kMaxGeneration is damaged.
GrantContent decode_grant(std::string_view bytes);

/// Whether a file with this content may be a lock file: blank, or one line that can be an id. A
/// line that begins as a JSON object or list does must name the holder in `record`, the content of
/// the grant file; behind that holder's line the end of a longer id may be left.
bool can_be_lock_file(std::string_view content, const GrantContent& record);

/// The generation of the next grant: one more than the recorded one; 1 where there is neither a
/// record nor a holder's name in the lock file. Where a record was and can't be read, the time in
/// milliseconds since 1970: more than were ever counted, so that no generation comes twice.
std::uint64_t next_generation(const GrantContent& previous, bool lock_file_is_empty,
                              std::chrono::system_clock::time_point now);

/// The pidfd of the process that has this pid and start time (os::process_start_time); nullopt when
/// there is none, or when it ends until `deadline`.
std::optional<base::UniqueFd> open_running(pid_t pid, std::uint64_t start_time,
                                           const base::Deadline& deadline);

/// Whether the recorded process still runs; one that does is given until `deadline` to end.
enum class HolderState { kNotVisible, kRunning, kEnded };
HolderState holder_state(const GrantRecord& record, const base::Deadline& deadline);

/// The id in a lock file: its first line without control characters, at most kMaxIdBytes.
std::string id_of_lock_file(std::string_view content);

}  // namespace fo::lock
