#include "lock/flock/flock_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "lock/grant.h"
#include "lock/lock_status.h"
#include "os/file/file.h"
#include "os/log.h"
#include "os/process/proc.h"
#include "os/process/process.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

using base::Deadline;
using base::Duration;
using base::Error;
using base::ExitStatus;
using base::throw_errno;
using base::UniqueFd;

// The numbers of stdin, stdout and stderr are never used, even if those are closed.
constexpr int kLowestFd = 3;
// Large enough for any id.
constexpr off_t kLockFileSpace = 4096;
// A dying process releases its locks before it counts as ended.
constexpr base::Duration kTimeToDie = std::chrono::seconds(1);

// A file of another owner is accepted: containers of several users may share a lock.
UniqueFd open_regular(const std::string& path, const std::string& what) {
  UniqueFd opened = os::open_plain_file(path, O_RDWR | O_CREAT, what, 0666);
  if (opened.get() >= kLowestFd) return opened;
  UniqueFd moved(::fcntl(opened.get(), F_DUPFD_CLOEXEC, kLowestFd));
  if (!moved) throw_errno(errno, what);
  return moved;
}

// Throws if the content is not that of a lock file, because a grant would overwrite it.
void refuse_other_content(int fd, const std::string& path, const std::string& what) {
  // A holder that is granted the lock between the two reads writes its record before its name, so
  // the next read finds both.
  for (int tries = 0;; ++tries) {
    const std::string content = read_start(fd, what);
    if (can_be_lock_file(content, {}) || can_be_lock_file(content, read_grant(path))) return;
    if (tries == 3) {
      throw Error(
          ExitStatus::kBadData,
          what + ": not a lock file: a lock file is empty, or has one line with a holder's id");
    }
  }
}

UniqueFd open_lock_file(const std::string& path) {
  const std::string what = "open lock file " + base::quoted(path);
  UniqueFd fd = open_regular(path, what);
  refuse_other_content(fd.get(), path, what);
  // Reserves space for the id without growing the file, so that it can be written to a full disk
  // later.
  if (::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, kLockFileSpace) != 0 && errno != EOPNOTSUPP) {
    throw_errno(errno, ExitStatus::kCannotCreate, what);
  }
  return fd;
}

bool is_at(const std::string& path, int fd) {
  struct stat at_path {};
  struct stat here {};
  if (::fstat(fd, &here) != 0) throw_errno(errno, "stat lock file " + base::quoted(path));
  // Errors other than a missing path do not mean that the file was replaced.
  if (::lstat(path.c_str(), &at_path) != 0) return errno != ENOENT && errno != ENOTDIR;
  return at_path.st_dev == here.st_dev && at_path.st_ino == here.st_ino;
}

// Makes `bytes` the whole content of a file of `size` bytes.
void overwrite(int fd, off_t size, std::string_view bytes, const std::string& what) {
  const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), 0);
  if (put < 0) throw_errno(errno, ExitStatus::kIoError, what);
  if (static_cast<std::size_t>(put) != bytes.size()) throw_errno(ENOSPC, what);
  if (size > put && ::ftruncate(fd, put) != 0) throw_errno(errno, ExitStatus::kIoError, what);
}

// A lock that this process inherited is not free before this process ends.
void refuse_own_lock(const std::string& path) {
  struct stat wanted {};
  if (::stat(path.c_str(), &wanted) != 0) return;
  os::each_fd(::getpid(), [&](int fd, const std::string&) {
    struct stat inherited {};
    if (::fstat(fd, &inherited) != 0 || inherited.st_dev != wanted.st_dev ||
        inherited.st_ino != wanted.st_ino || !os::holds_file_lock(::getpid(), fd)) {
      return;
    }
    throw Error(ExitStatus::kConfig, "acquire lock " + base::quoted(path) +
                                         ": already inherited, on descriptor " +
                                         std::to_string(fd));
  });
}

// Affects all copies of the descriptor; waiters find it free.
void unlock(int fd) {
  if (::flock(fd, LOCK_UN) != 0) throw_errno(errno, "unlock a file");
}

}  // namespace

FlockLock::FlockLock(std::string path, std::string id, std::optional<int> fd)
    : FailoverLock(std::move(path), std::move(id)) {
  refuse_own_lock(this->path());
  fd_ = open_lock_file(this->path());
  if (fd && *fd != fd_.get()) {
    const std::string what = "move the lock to descriptor " + std::to_string(*fd);
    if (*fd < kLowestFd) throw Error(ExitStatus::kUsage, what + ": must be 3 or more");
    if (::fcntl(*fd, F_GETFD) >= 0) throw Error(ExitStatus::kUsage, what + ": it is in use");
    UniqueFd moved(::dup3(fd_.get(), *fd, O_CLOEXEC));
    if (!moved) throw_errno(errno, ExitStatus::kUsage, what);
    fd_ = std::move(moved);
  }
  open_record();
}

bool FlockLock::is_replaced() const { return !is_at(path(), fd_.get()); }

FailoverLock::Watch FlockLock::watch() {
  const bool is_new = !path_watch_;
  // Created when a wait begins: closing it takes milliseconds, which would delay an exec.
  if (is_new) path_watch_.emplace(path());
  // A change before the watch existed is found by a check after it.
  return {path_watch_->fd(), POLLIN,
          Deadline::after(is_new ? Duration::zero() : kPathCheckInterval)};
}

std::optional<Loss> FlockLock::check() {
  if (path_watch_) path_watch_->drain();
  const base::BootClock::time_point now = base::BootClock::now();
  if (is_replaced()) {
    return Loss{ExitStatus::kProtocol, "the file was replaced", Deadline::after(Duration::zero()),
                now - seen_at_};
  }
  seen_at_ = now;
  return std::nullopt;
}

void FlockLock::release() { unlock(fd_.get()); }

void FlockLock::reopen() {
  const UniqueFd fresh = open_lock_file(path());
  // Replaces the old description, whose lock ends with it.
  if (::dup3(fresh.get(), fd_.get(), O_CLOEXEC) < 0) {
    throw_errno(errno, "open lock file " + base::quoted(path()));
  }
}

void FlockLock::open_record() {
  if (record_fd_ && is_at(record_path(), record_fd_.get())) return;
  const std::string what = "open grant record " + base::quoted(record_path());
  record_fd_ = open_regular(record_path(), what);
  if (read_start(record_fd_.get(), what).size() > kGrantFileSize) {
    record_fd_.reset();
    throw Error(ExitStatus::kBadData, what + ": too long for a grant record");
  }
  if (const int err = ::posix_fallocate(record_fd_.get(), 0, kGrantFileSize); err != 0) {
    throw_errno(err, ExitStatus::kCannotCreate, what);
  }
}

FailoverLock::Result FlockLock::acquire(const Deadline& deadline, int interrupt_fd,
                                        const os::Reminder& reminder) {
  using Clock = Deadline::Clock;
  const Clock::time_point begin = Clock::now();
  prepare();
  bool reopened = false;
  for (;;) {
    // The waiter lives until the grant is recorded, so that its thread ends in the meantime.
    os::LockWaiter waiter(fd_.get());
    const os::LockWait outcome = waiter.wait(deadline, interrupt_fd, reminder);
    if (outcome != os::LockWait::kLocked) return {outcome, {}};
    try {
      // If the file was replaced, two processes may get here, each with its own file.
      if (!record_fd_) open_record();
      os::LockWaiter turn(record_fd_.get());
      if (const auto got = turn.wait(deadline, interrupt_fd); got != os::LockWait::kLocked) {
        unlock(fd_.get());
        return {got, {}};
      }
      std::optional<Grant> grant;
      if (!is_replaced() && is_at(record_path(), record_fd_.get())) {
        grant = record_grant(Clock::now() - begin);
      }
      unlock(record_fd_.get());
      seen_at_ = base::BootClock::now();
      if (grant) return {os::LockWait::kLocked, *grant, reopened};
      reopen();
      reopened = true;
      open_record();
    } catch (...) {
      record_fd_.reset();
      fd_.reset();
      throw;
    }
  }
}

void FlockLock::prepare() {
  record_.holder = id();
  record_.pid = ::getpid();
  record_.pid_ns = os::own_pid_namespace();
  record_.start_time = os::process_start_time(record_.pid).value_or(0);
  record_.granted_at = text::format_time(std::chrono::system_clock::now());
  record_.host = os::host_name();
  // Touches the memory and the code, so that they need not be paged in after the grant.
  static_cast<void>(encode_grant(record_));
  before_bytes_ = read_record();
  before_ = decode_grant(before_bytes_);
}

std::string FlockLock::read_record() const {
  return read_start(record_fd_.get(), "read grant record " + base::quoted(record_path()));
}

Grant FlockLock::record_grant(base::Duration waited) {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) throw_errno(errno, "stat lock file " + base::quoted(path()));
  // Usually the same content as before the wait.
  const std::string bytes = read_record();
  const GrantContent before = bytes == before_bytes_ ? before_ : decode_grant(bytes);
  record_.inode = info.st_ino;
  if (before.kind == GrantContent::Kind::kRecord && before.record.inode != record_.inode &&
      holder_state(before.record, Deadline::after(kTimeToDie)) == HolderState::kRunning) {
    throw Error(ExitStatus::kConfig, "acquire lock " + base::quoted(path()) + ": process " +
                                         std::to_string(before.record.pid) + " (" +
                                         base::quoted(before.record.holder) +
                                         ") holds a file that was replaced by this one");
  }

  Grant grant{id(), 0, std::chrono::system_clock::now(), waited};
  grant.generation = next_generation(before, info.st_size == 0, grant.granted_at);
  if (before.kind == GrantContent::Kind::kDamaged) {
    os::log(os::LogLevel::kWarning, "grant record {} is damaged: continuing with generation {}",
            base::quoted(record_path()), grant.generation);
  }
  record_.generation = grant.generation;
  record_.granted_at = text::format_time(grant.granted_at);
  // The record is written first: a generation must never be lost, but a name may be late.
  overwrite(record_fd_.get(), static_cast<off_t>(bytes.size()), encode_grant(record_),
            "write grant record " + base::quoted(record_path()));
  overwrite(fd_.get(), info.st_size, id() + "\n", "write lock file " + base::quoted(path()));
  return grant;
}

}  // namespace fo::lock
