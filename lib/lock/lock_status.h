// The state of a lock, as seen without contending for it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "lock/grant.h"
#include "lock/lock_uri.h"

namespace fo::lock {

/// A process that has the lock's file open, or a connection to its server.
struct OpenBy {
  pid_t pid = 0;
  /// -1 if it is unknown.
  int fd = -1;
  std::string command;
  /// The lock is held while this process lives (or keeps its connection).
  bool holds = false;
};

/// The command name of a process, without control characters; empty if it is not visible.
std::string command_of(pid_t pid);

/// The first kGrantFileSize + 1 bytes of a lock file or of a grant file. Throws "`what`: reason".
std::string read_start(int fd, const std::string& what);

/// The content of the grant file beside the lock file at `path`. Throws kNotPermitted and others if
/// it cannot be read.
GrantContent read_grant(const std::string& path);

struct Waiter {
  /// 0 if it is not visible.
  pid_t pid = 0;
  /// Empty if it is unknown.
  std::string id;
  friend bool operator==(const Waiter&, const Waiter&) = default;
};

struct LockStatus {
  std::string path;
  bool held = false;
  /// Empty while the lock is free, and for a holder that writes no name.
  std::string holder;
  /// The holder's record; nullopt for a free lock and for a holder without a record. From a lock
  /// server, only generation, granted_at and a visible pid.
  std::optional<GrantRecord> record;
  HolderState holder_state = HolderState::kNotVisible;
  /// The generation of the last recorded grant, even if the lock is free now.
  std::optional<std::uint64_t> last_generation;
  /// In queue order, if the lock has a queue. For a file, those of this pid namespace.
  std::vector<Waiter> waiters;
  /// Visible processes of this pid namespace.
  std::vector<OpenBy> open_by;
  /// Time for which a restarted lock server still waits for its recorded holder.
  std::optional<base::Duration> window_left;
};

/// The timeout for a lock server.
inline constexpr base::Duration kQueryTimeout = std::chrono::seconds(5);

/// The holder's id; empty for a holder that writes no name; nullopt if the lock is free, whatever a
/// file contains, or the file does not exist. Throws kNotPermitted, kNoInput if the file's folder
/// does not exist, kBadData for a symbolic link; for a server kUnavailable, kTryAgain without an
/// answer within `limit`, kProtocol.
std::optional<std::string> find_owner(const LockUri& lock, base::Duration limit = kQueryTimeout);

/// {"holder": id or null}.
std::string owner_json(const std::optional<std::string>& id);

/// Like find_owner, with the complete state.
LockStatus read_lock_status(const LockUri& lock, base::Duration limit = kQueryTimeout);

/// One JSON object.
std::string to_json(const LockStatus& status);
/// "key: value" lines.
std::string to_text(const LockStatus& status);

/// One line about a held lock: its holder, whether that has ended, and the processes that have it
/// open: "held by 'engine-0', generation 4, process 71 which has ended; held open by 75 (python3)".
std::string describe_holders(const LockStatus& status);

}  // namespace fo::lock
