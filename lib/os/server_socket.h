// The socket of a daemon: no other server has it while this one does, a dead server's is replaced,
// and its name goes with its owner.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/unique_fd.h"

namespace fo::os {

/// A name in the file system that goes when its owner does. Children leave with _exit, so only the
/// parent ever removes it.
class OwnedPath {
 public:
  explicit OwnedPath(std::string path) : path_(std::move(path)) {}
  OwnedPath(OwnedPath&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  OwnedPath& operator=(OwnedPath&&) = delete;
  ~OwnedPath();

 private:
  std::string path_;
};

/// The open lock file, locked until it is closed; nullopt when another process has it locked until
/// `deadline`, or until `interrupt_fd` (where >= 0) is readable. It is created where it is missing,
/// and never removed. Waits as LockWaiter does. Throws what that and open_plain_file throw.
std::optional<base::UniqueFd> lock_path(const std::string& path, const base::Deadline& deadline,
                                        int interrupt_fd = -1);
/// The same without waiting.
std::optional<base::UniqueFd> try_lock_path(const std::string& path);

/// A socket that is ours: nobody else who uses `<path>.lock` serves it while this lives.
struct ServerSocket {
  base::UniqueFd lock;
  base::UniqueFd listener;
  OwnedPath path;
};

/// A listening socket as listen_unix makes it, in place of a dead one; by its mode for our own user
/// only. The lock of a server that is ending is waited for until `lock_by`; a process that answers
/// there without the lock may be ending, too, and gets a second for it. Throws kUsage for the path;
/// kCannotCreate when a server has it or what is there is no socket; and what lock_path and
/// listen_unix throw.
ServerSocket open_server_socket(
    const std::string& path, mode_t mode = 0600,
    const base::Deadline& lock_by = base::Deadline::after(base::Duration::zero()));

}  // namespace fo::os
