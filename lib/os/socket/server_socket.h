// The socket of a daemon. One daemon at a time has it: it replaces the socket of a dead server, and
// its destructor removes the name.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/unique_fd.h"

namespace fo::os {

/// Owns a name in the file system: the destructor removes it, unless another process has replaced
/// it. Children end with _exit, so only the parent removes it.
class OwnedPath {
 public:
  /// `path` must exist.
  explicit OwnedPath(std::string path);
  OwnedPath(OwnedPath&& other) noexcept
      : path_(std::exchange(other.path_, {})), device_(other.device_), inode_(other.inode_) {}
  OwnedPath& operator=(OwnedPath&&) = delete;
  ~OwnedPath();

  /// Leaves the name to another process.
  void release() { path_.clear(); }

 private:
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

/// The open lock file, locked until it is closed; nullopt if another process has it locked until
/// `deadline`, or until `interrupt_fd` (where >= 0) is readable. Creates a missing file and never
/// removes it. Waits as LockWaiter does. Throws what that and open_plain_file throw.
std::optional<base::UniqueFd> lock_path(const std::string& path, const base::Deadline& deadline,
                                        int interrupt_fd = -1);
/// The same without waiting.
std::optional<base::UniqueFd> try_lock_path(const std::string& path);

/// A listening socket and its lock: no other server that uses `<path>.lock` serves it while this
/// object lives.
struct ServerSocket {
  base::UniqueFd lock;
  base::UniqueFd listener;
  OwnedPath path;
};

/// A listening socket as listen_unix makes it, which replaces that of a dead server; the default
/// mode admits only our own user. Waits until `lock_by` for the lock, which a server that is ending
/// may still have, and up to one second for a server that answers without the lock, which may be
/// ending. Throws kUsage for the path, kCannotCreate if another server uses it or it is not a
/// socket, and the errors of lock_path and listen_unix.
ServerSocket open_server_socket(
    const std::string& path, mode_t mode = 0600,
    const base::Deadline& lock_by = base::Deadline::after(base::Duration::zero()));

/// A listening socket at `path` in place of a socket that no process serves; the caller has the
/// lock of the path. Throws kCannotCreate if it is not a socket, and what listen_unix throws.
base::UniqueFd replace_socket(const std::string& path, mode_t mode = 0600);

}  // namespace fo::os
