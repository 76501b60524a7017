#include "os/file/file_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "os/file/file.h"
#include "os/process/process.h"
#include "text/ascii.h"

namespace fo::os {
namespace {

using base::throw_errno;

constexpr base::ByteCount kMaxProcText = 64 * base::kMiB;

// SIGURG is ignored by default, so a stray one does no harm.
constexpr int kWakeSignal = SIGURG;

void install_wake_handler() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_handler = [](int) {};  // without SA_RESTART: flock returns EINTR
    if (::sigaction(kWakeSignal, &action, nullptr) != 0) throw_errno(errno, "handle SIGURG");
    return true;
  }();
  static_cast<void>(installed);
}

// The first words of a line, up to the array's size.
std::array<std::string_view, 8> split_words(std::string_view line) {
  std::array<std::string_view, 8> words{};
  std::size_t count = 0;
  while (count < words.size()) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    words[count++] = line.substr(begin, end - begin);
    line.remove_prefix(end);
  }
  return words;
}

std::optional<std::uint64_t> parse_number(std::string_view text, int base) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, ec] = std::from_chars(text.data(), end, value, base);
  if (ec != std::errc() || at != end || text.empty()) return std::nullopt;
  return value;
}

// "fe:00:10952893" (major and minor in hexadecimal) or mountinfo's "254:0" (decimal, no inode).
std::optional<FileKey> parse_key(std::string_view text, int base) {
  const std::size_t first = text.find(':');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = std::min(text.find(':', first + 1), text.size());
  const auto major = parse_number(text.substr(0, first), base);
  const auto minor = parse_number(text.substr(first + 1, second - first - 1), base);
  if (!major || !minor) return std::nullopt;
  if (second == text.size()) return FileKey{*major, *minor, 0};
  const auto inode = parse_number(text.substr(second + 1), 10);
  if (!inode) return std::nullopt;
  return FileKey{*major, *minor, *inode};
}

std::optional<std::string> read_proc(const std::string& path) {
  try {
    return read_file(path, kMaxProcText);
  } catch (const base::Error&) {
    return std::nullopt;
  }
}

}  // namespace

bool try_lock_file(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) throw_errno(errno, base::ExitStatus::kOsError, "lock a file");
  }
  return true;
}

bool try_lock_entry(int folder, const char* name, int fd) {
  struct stat held {};
  struct stat found {};
  return try_lock_file(fd) && ::fstat(fd, &held) == 0 &&
         ::fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && held.st_dev == found.st_dev &&
         held.st_ino == found.st_ino;
}

LockWait LockWaiter::wait(const base::Deadline& deadline, int interrupt_fd,
                          const Reminder& reminder) {
  const bool reminds = reminder.every > base::Duration::zero();
  if (try_lock_file(fd_)) return LockWait::kLocked;
  if (deadline.expired()) return LockWait::kDeadline;
  if (deadline.is_never() && interrupt_fd < 0 && !reminds) return block();
  deadline_ = deadline;
  interrupt_fd_ = interrupt_fd;
  if (reminds) reminder_ = reminder;
  start_watcher();
  return block();
}

// Not a std::thread, which frees memory when it ends: a thread's first use of the heap maps an
// arena, which would delay the waiter's page faults when it is granted the lock.
void LockWaiter::start_watcher() {
  done_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!done_) throw_errno(errno, "create an eventfd");
  install_wake_handler();
  waiter_ = ::pthread_self();
  // The thread starts with every signal blocked, so that it receives no signal meant for another
  // one.
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &mask_before_);
  const auto body = [](void* self) -> void* {
    static_cast<LockWaiter*>(self)->watch();
    return nullptr;
  };
  const int err = ::pthread_create(&watcher_, nullptr, body, this);
  sigset_t while_waiting = mask_before_;
  if (err == 0) sigdelset(&while_waiting, kWakeSignal);
  ::pthread_sigmask(SIG_SETMASK, &while_waiting, nullptr);
  if (err != 0) throw_errno(err, "start a thread");
  watched_ = true;
}

LockWait LockWaiter::block() {
  while (::flock(fd_, LOCK_EX) != 0) {
    if (errno != EINTR) throw_errno(errno, base::ExitStatus::kOsError, "lock a file");
    if (called_back_) return reason_;
  }
  if (watched_) ::eventfd_write(done_.get(), 1);
  return LockWait::kLocked;
}

void LockWaiter::watch() noexcept {
  std::array<pollfd, 2> ready{{{done_.get(), POLLIN, 0}, {interrupt_fd_, POLLIN, 0}}};
  base::Deadline remind_at = reminder_.next();
  int count = 0;
  do {
    count = ::poll(ready.data(), ready.size(), deadline_.sooner(remind_at).poll_timeout());
    if (count == 0 && remind_at.expired()) {
      reminder_.remind();
      remind_at = reminder_.next();
    }
  } while (count < 0 || (count == 0 && !deadline_.expired()));
  if (ready[0].revents != 0) return;
  reason_ = count == 0 ? LockWait::kDeadline : LockWait::kInterrupted;
  called_back_ = true;
  // A signal before the waiter has entered flock interrupts nothing, so it is sent repeatedly.
  do {
    ::pthread_kill(waiter_, kWakeSignal);
  } while (::poll(ready.data(), 1, 1) <= 0);
}

LockWaiter::~LockWaiter() {
  if (!watched_) return;
  ::eventfd_write(done_.get(), 1);
  ::pthread_join(watcher_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

FileKey file_key(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw_errno(errno, "stat a lock file");
  FileKey key{major(info.st_dev), minor(info.st_dev), info.st_ino};
  const auto fd_info = read_proc("/proc/self/fdinfo/" + std::to_string(fd));
  const auto mounts = read_proc("/proc/self/mountinfo");
  if (!fd_info || !mounts) return key;
  std::string_view mount;
  for (const std::string_view line : text::split(*fd_info, '\n')) {
    const auto words = split_words(line);
    if (words[0] == "mnt_id:") mount = words[1];
    if (words[0] == "ino:") key.inode = parse_number(words[1], 10).value_or(key.inode);
  }
  for (const std::string_view line : text::split(*mounts, '\n')) {
    const auto words = split_words(line);
    if (words[0] != mount) continue;
    if (const auto device = parse_key(words[2], 10)) {
      key.major = device->major;
      key.minor = device->minor;
    }
  }
  return key;
}

FileLocks parse_file_locks(std::string_view text, const FileKey& key) {
  FileLocks locks;
  for (const std::string_view line : text::split(text, '\n')) {
    auto words = split_words(line);
    const bool waits = words[1] == "->";
    if (waits) std::move(words.begin() + 2, words.end(), words.begin() + 1);
    if (words[1] != "FLOCK" || words[3] != "WRITE" || parse_key(words[5], 16) != key) continue;
    const auto pid = parse_number(words[4], 10);
    if (!pid) continue;
    if (waits) {
      locks.waiters.push_back(static_cast<pid_t>(*pid));
    } else {
      locks.holder = static_cast<pid_t>(*pid);
    }
  }
  return locks;
}

FileLocks visible_file_locks(const FileKey& key) {
  const auto text = read_proc("/proc/locks");
  return text ? parse_file_locks(*text, key) : FileLocks{};
}

bool holds_file_lock(pid_t pid, int fd) {
  const auto info = read_proc("/proc/" + std::to_string(pid) + "/fdinfo/" + std::to_string(fd));
  return info && info->find("FLOCK  ADVISORY  WRITE") != std::string::npos;
}

bool is_file_locked(int fd, const FileLocks& visible) {
  if (visible.holder) return true;
  // The kernel returns the list in pieces; if it changes meanwhile, one read may miss an entry.
  if (visible_file_locks(file_key(fd)).holder) return true;
  // In the initial pid namespace /proc/locks shows every lock of the machine.
  constexpr std::uint64_t kInitialPidNamespace = 0xEFFFFFFC;
  if (own_pid_namespace() == kInitialPidNamespace && ::access("/proc/locks", R_OK) == 0) {
    return false;
  }
  if (::flock(fd, LOCK_SH | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return true;
    throw_errno(errno, base::ExitStatus::kOsError, "probe a lock");
  }
  ::flock(fd, LOCK_UN);
  return false;
}

}  // namespace fo::os
