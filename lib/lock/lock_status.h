// What can be seen of a lock by those who do not take part in it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "lock/grant.h"
#include "lock/lock_uri.h"

namespace fo::lock {

/// A process that has the lock open: its file, or a connection to its server.
struct OpenBy {
  pid_t pid = 0;
  /// -1 where it is not known.
  int fd = -1;
  std::string command;
  /// The lock is held for as long as this one lives (or keeps its connection).
  bool holds = false;
};

/// The name that a process gives itself, without control characters; empty where it is not to be
/// seen.
std::string command_of(pid_t pid);

/// The first kGrantFileSize + 1 bytes of a lock file or of a grant file. Throws "`what`: reason".
std::string read_start(int fd, const std::string& what);

/// The content of the grant file beside the lock file at `path`. Throws kNotPermitted and others
/// for one that can't be read.
GrantContent read_grant(const std::string& path);

struct Waiter {
  /// 0 where it is not visible.
  pid_t pid = 0;
  /// Empty where it is not known.
  std::string id;
  friend bool operator==(const Waiter&, const Waiter&) = default;
};

struct LockStatus {
  std::string path;
  bool held = false;
  /// Empty while the lock is free, and for a holder that writes no name.
  std::string holder;
  /// The holder's record; nullopt for a free lock and for a holder that writes no record. From a
  /// lock server, no more than generation, granted_at and a pid that is visible.
  std::optional<GrantRecord> record;
  HolderState holder_state = HolderState::kNotVisible;
  /// Of the last grant that was recorded, whoever holds the lock now.
  std::optional<std::uint64_t> last_generation;
  /// In the order of their turn where the lock has one. Of a file's, those of this pid namespace.
  std::vector<Waiter> waiters;
  /// Those of this pid namespace that we may look at.
  std::vector<OpenBy> open_by;
  /// A lock server that was started anew waits so long for the holder on file to return.
  std::optional<base::Duration> window_left;
};

/// What a lock server gets to answer.
inline constexpr base::Duration kAskTime = std::chrono::seconds(5);

/// The holder's id, or nullopt when nobody holds the lock, whatever a file says. Empty for a holder
/// that writes no name. A file that is not there is held by nobody. Throws kNotPermitted, kNoInput
/// for a file whose folder is not there, kBadData for a symbolic link; for a server kUnavailable,
/// kTryAgain when it does not answer within `limit`, kProtocol.
std::optional<std::string> find_owner(const LockUri& lock, base::Duration limit = kAskTime);

/// {"holder": id or null}.
std::string owner_json(const std::optional<std::string>& id);

/// As find_owner, with all the rest.
LockStatus read_lock_status(const LockUri& lock, base::Duration limit = kAskTime);

/// One JSON object.
std::string to_json(const LockStatus& status);
/// "key: value" lines.
std::string to_text(const LockStatus& status);

/// Of a lock that is held, in one line: by whom, whether that one is dead, and which processes keep
/// it: "held by 'engine-0', generation 4, process 71 which has ended; kept by 75 (python3)".
std::string describe_holders(const LockStatus& status);

}  // namespace fo::lock
