#include "os/socket/server_socket.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "os/file/file.h"
#include "os/file/file_lock.h"
#include "os/pause.h"
#include "os/socket/unix_socket.h"

namespace fo::os {
namespace {

constexpr base::Duration kDyingTime = std::chrono::seconds(1);

}  // namespace

using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::throw_errno;
using base::UniqueFd;

OwnedPath::OwnedPath(std::string path) : path_(std::move(path)) {
  struct stat info {};
  if (::lstat(path_.c_str(), &info) != 0) return;
  device_ = info.st_dev;
  inode_ = info.st_ino;
}

OwnedPath::~OwnedPath() {
  struct stat info {};
  if (path_.empty() || ::lstat(path_.c_str(), &info) != 0) return;
  if (info.st_dev == device_ && info.st_ino == inode_) ::unlink(path_.c_str());
}

std::optional<UniqueFd> lock_path(const std::string& path, const Deadline& deadline,
                                  int interrupt_fd) {
  UniqueFd lock =
      open_plain_file(path, O_RDWR | O_CREAT, "open lock file " + base::quoted(path), 0600);
  LockWaiter waiter(lock.get());
  if (waiter.wait(deadline, interrupt_fd) != LockWait::kLocked) return std::nullopt;
  return lock;
}

std::optional<UniqueFd> try_lock_path(const std::string& path) {
  return lock_path(path, Deadline::after(base::Duration::zero()));
}

ServerSocket open_server_socket(const std::string& path, mode_t mode, const Deadline& lock_by) {
  check_socket_path(path);
  std::optional<UniqueFd> lock = lock_path(path + ".lock", lock_by);
  const auto in_use = [&] {
    return Error(ExitStatus::kCannotCreate,
                 "serve socket " + base::quoted(path) + ": another server uses it");
  };
  if (!lock) throw in_use();
  // A server of another program answers without the lock. So may the last child of one of our
  // servers, for a moment after its parent, which had the lock, has ended.
  const Deadline deadline = Deadline::after(kDyingTime);
  while (is_socket_live(path)) {
    if (deadline.expired()) throw in_use();
    pause_for(std::chrono::milliseconds(5));
  }
  UniqueFd listener = replace_socket(path, mode);
  return {std::move(*lock), std::move(listener), OwnedPath(path)};
}

UniqueFd replace_socket(const std::string& path, mode_t mode) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      throw Error(ExitStatus::kCannotCreate,
                  "serve socket " + base::quoted(path) + ": not a socket");
    }
    if (::unlink(path.c_str()) != 0)
      throw_errno(errno, "remove stale socket " + base::quoted(path));
  }
  return listen_unix(path, mode);
}

}  // namespace fo::os
