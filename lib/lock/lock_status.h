// What can be seen of a lock by those who do not take part in it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "lock/grant.h"

namespace fo::lock {

/// A process that has the lock file open.
struct OpenBy {
  pid_t pid = 0;
  int fd = -1;
  std::string command;
  /// It shares the description that is locked: the lock is held for as long as this one lives.
  bool holds = false;
};

struct LockStatus {
  std::string path;
  bool held = false;
  /// What the lock file names, while it is held; empty for a holder that writes no name.
  std::string holder;
  /// The holder's record; nullopt for a free lock and for a holder that writes no record.
  std::optional<GrantRecord> record;
  HolderState holder_state = HolderState::kNotVisible;
  /// Of the last grant that was recorded, whoever holds the lock now.
  std::optional<std::uint64_t> last_generation;
  /// Those of this pid namespace.
  std::vector<pid_t> waiters;
  /// Those of this pid namespace that we may look at.
  std::vector<OpenBy> open_by;
};

/// The holder's id, or nullopt when nobody holds the lock, whatever the file says. Empty for a
/// holder that writes no name. Throws kNotPermitted; a file that is not there is held by nobody.
std::optional<std::string> find_owner(const std::string& path);

/// {"holder": id or null}.
std::string owner_json(const std::optional<std::string>& id);

/// As find_owner, with all the rest.
LockStatus read_lock_status(const std::string& path);

/// One JSON object.
std::string to_json(const LockStatus& status);
/// "key: value" lines.
std::string to_text(const LockStatus& status);

}  // namespace fo::lock
