#include "fleet/registry/dir_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "fleet/registry/key.h"
#include "fleet/registry/registry.h"
#include "os/file/file.h"
#include "os/file/random.h"

namespace fo::fleet {
namespace {

using base::Error;
using base::ExitStatus;
using base::UniqueFd;

constexpr std::string_view kLockSuffix = ".lock";
constexpr auto kLeftFor = std::chrono::minutes(1);
// A file whose time of modification is the time of the folder's last cleaning.
constexpr char kCleaned[] = ".cleaned";

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
using Entries = std::unique_ptr<DIR, CloseFolder>;

// True if open(2) failed because the file or folder does not exist.
bool is_missing(int err) { return err == ENOENT || err == ENOTDIR || err == ELOOP; }

UniqueFd open_folder(int root, const std::string& folder) {
  return UniqueFd(::openat(root, folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// The range of a process's lock on its record, for fcntl(2).
struct flock whole_file() {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  return range;
}

std::string folder_of(const std::string& key) { return key.substr(0, key.rfind('/')); }

// The path of a file that belongs to the record with this path.
std::string hidden(std::string_view path, std::string_view suffix) {
  std::string hidden(path);
  hidden.insert(path.rfind('/') + 1, 1, '.');
  return hidden.append(suffix);
}

UniqueFd open_root(const std::string& path, bool create) {
  const std::string what = "registry " + base::quoted("dir:" + path);
  if (create && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    base::throw_cannot_create(errno, what);
  }
  UniqueFd root(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!root) {
    const bool is_refused = errno == EACCES || errno == EPERM;
    base::throw_errno(errno, is_refused ? ExitStatus::kNotPermitted : ExitStatus::kUnavailable,
                      what);
  }
  struct stat info {};
  if (::fstat(root.get(), &info) != 0) base::throw_errno(errno, ExitStatus::kOsError, what);
  if (const auto reason = os::find_other_writer(info)) {
    throw Error(ExitStatus::kNotPermitted, what + ": " + *reason);
  }
  return root;
}

}  // namespace

DirStore::DirStore(std::string path, bool create)
    : path_(std::move(path)), root_(open_root(path_, create)) {}

bool DirStore::is_replaced() const {
  struct stat now {};
  struct stat opened {};
  return ::stat(path_.c_str(), &now) != 0 || ::fstat(root_.get(), &opened) != 0 ||
         now.st_ino != opened.st_ino || now.st_dev != opened.st_dev;
}

void DirStore::reopen(bool create) {
  if (is_replaced()) root_ = open_root(path_, create);
}

void DirStore::fail(int err, const std::string& action, std::string_view key) const {
  base::throw_errno(
      err, "registry " + base::quoted("dir:" + path_) + ": " + action + " " + base::quoted(key));
}

UniqueFd DirStore::find_file(const RecordPath& record_path, const std::string& path) const {
  UniqueFd fd(::openat(record_path.folder, path.c_str(),
                       O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd && !is_missing(errno)) fail(errno, "read", record_path.key);
  return fd;
}

std::optional<DirStore::Entry> DirStore::find(const RecordPath& record_path) const {
  Entry entry;
  entry.file = find_file(record_path, std::string(record_path.path));
  if (!entry.file) return std::nullopt;
  struct stat info {};
  if (::fstat(entry.file.get(), &info) != 0) fail(errno, "read", record_path.key);
  if (!S_ISREG(info.st_mode)) return std::nullopt;
  entry.stamp = {info.st_ino, os::nanoseconds(info.st_ctim)};
  entry.size = static_cast<std::size_t>(info.st_size);
  if (is_ephemeral(record_path.key)) entry.is_alive = is_locked(record_path);
  return entry;
}

bool DirStore::is_locked(const RecordPath& record_path) const {
  const UniqueFd fd = find_file(record_path, hidden(record_path.path, kLockSuffix));
  struct flock range = whole_file();
  return fd && ::fcntl(fd.get(), F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

std::string DirStore::read(const Entry& entry, std::string_view key) const {
  // A file is never written to once it has the name of a record.
  std::string text(std::min<std::size_t>(entry.size, std::size_t{kMaxRecordBytes} + 1), '\0');
  std::size_t count = 0;
  while (count < text.size()) {
    const ssize_t got = ::read(entry.file.get(), text.data() + count, text.size() - count);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(errno, "read", key);
    if (got == 0) break;
    count += static_cast<std::size_t>(got);
  }
  text.resize(count);
  return text;
}

void DirStore::walk(const std::string& folder, std::string_view prefix,
                    const std::function<void(const std::string&)>& on_folder,
                    const std::function<void(const RecordPath&)>& on_record) const {
  const std::string begin = folder.empty() ? "" : folder + "/";
  if (!begin.starts_with(prefix) && !prefix.starts_with(begin)) return;
  on_folder(folder);
  const std::string path_of_folder = folder.empty() ? "." : folder;
  UniqueFd fd = open_folder(root_.get(), path_of_folder);
  if (!fd && is_missing(errno)) return;
  const Entries entries(fd ? ::fdopendir(fd.get()) : nullptr);
  if (!entries) fail(errno, "read folder", path_of_folder);
  const int opened = fd.release();
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(entries.get());
    if (entry == nullptr) {
      if (errno != 0 && !is_missing(errno)) fail(errno, "read folder", path_of_folder);
      return;
    }
    const std::string_view name = entry->d_name;
    if (name.starts_with('.')) continue;
    unsigned char type = entry->d_type;
    struct stat info {};
    if (type == DT_UNKNOWN && ::fstatat(opened, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
      type = S_ISDIR(info.st_mode) ? DT_DIR : DT_REG;
    }
    const std::string path = begin + entry->d_name;
    if (type == DT_DIR) {
      walk(path, prefix, on_folder, on_record);
    } else if (type == DT_REG && path.starts_with(prefix) && is_key(path)) {
      on_record({opened, name, path});
    }
  }
}

void DirStore::make_folders(const std::string& key) const {
  for (std::size_t slash = key.find('/'); slash != std::string::npos;
       slash = key.find('/', slash + 1)) {
    const std::string folder = key.substr(0, slash);
    if (::mkdirat(root_.get(), folder.c_str(), 0700) != 0 && errno != EEXIST) {
      fail(errno, "create folder", folder);
    }
  }
}

UniqueFd DirStore::try_lock_folder(const std::string& key) const {
  make_folders(key);
  const std::string folder = folder_of(key);
  UniqueFd fd = open_folder(root_.get(), folder);
  if (!fd) fail(errno, "open folder", folder);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno != EWOULDBLOCK && errno != EINTR) fail(errno, "lock folder", folder);
  return UniqueFd();
}

void DirStore::write(const std::string& key, std::string_view text) const {
  const std::string temporary = hidden(key, "." + os::random_hex(8) + ".tmp");
  const UniqueFd fd(::openat(root_.get(), temporary.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) fail(errno, "write", key);
  try {
    os::write_all(fd.get(), text,
                  "registry " + base::quoted("dir:" + path_) + ": write " + base::quoted(key));
    if (::renameat(root_.get(), temporary.c_str(), root_.get(), key.c_str()) != 0) {
      fail(errno, "write", key);
    }
  } catch (const Error&) {
    ::unlinkat(root_.get(), temporary.c_str(), 0);
    throw;
  }
}

bool DirStore::remove(const std::string& key) const {
  if (::unlinkat(root_.get(), key.c_str(), 0) == 0) return true;
  if (errno != ENOENT) fail(errno, "remove", key);
  return false;
}

UniqueFd DirStore::try_lock_record(const std::string& key) const {
  const std::string lock = hidden(key, kLockSuffix);
  UniqueFd fd(::openat(root_.get(), lock.c_str(),
                       O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600));
  if (!fd) fail(errno, "create", lock);
  struct flock range = whole_file();
  if (::fcntl(fd.get(), F_OFD_SETLK, &range) == 0) return fd;
  if (errno != EAGAIN && errno != EACCES) fail(errno, "lock", lock);
  return UniqueFd();
}

void DirStore::clean(const std::string& key) const {
  const std::string folder = folder_of(key);
  std::vector<std::string> files;
  UniqueFd fd = open_folder(root_.get(), folder);
  const Entries entries(fd ? ::fdopendir(fd.get()) : nullptr);
  if (!entries) return;
  const int opened = fd.release();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  struct stat cleaned {};
  const bool is_known = ::fstatat(opened, kCleaned, &cleaned, AT_SYMLINK_NOFOLLOW) == 0;
  const auto since = now - std::chrono::nanoseconds(os::nanoseconds(cleaned.st_mtim));
  if (is_known && since >= std::chrono::nanoseconds::zero() && since < kLeftFor) return;
  const UniqueFd mark(
      ::openat(opened, kCleaned, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (mark) ::futimens(mark.get(), nullptr);
  while (const dirent* const entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    struct stat info {};
    if (::fstatat(opened, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(info.st_mode)) continue;
    const std::chrono::nanoseconds changed(os::nanoseconds(info.st_mtim));
    if (now - changed > kLeftFor) files.push_back(name);
  }
  for (const std::string& name : files) {
    const std::string_view record = record_of(name);
    const bool is_temporary = name.starts_with('.') && name.ends_with(".tmp");
    const std::string_view path = record.empty() ? name : record;
    const std::string record_key = folder + "/" + std::string(path);
    // The age of a lock file does not show that its process has ended, so the lock is queried. A
    // process that ends leaves its record and its lock file.
    const bool is_left =
        !is_temporary && is_ephemeral(record_key) && !is_locked({opened, path, record_key});
    if (is_temporary || is_left) ::unlinkat(opened, name.c_str(), 0);
  }
}

bool DirStore::is_locked_by(int record_lock, const std::string& key) const {
  struct stat held {};
  struct stat named {};
  return ::fstat(record_lock, &held) == 0 &&
         ::fstatat(root_.get(), hidden(key, kLockSuffix).c_str(), &named, AT_SYMLINK_NOFOLLOW) ==
             0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

std::string_view DirStore::record_of(std::string_view lock_name) {
  if (!lock_name.starts_with('.') || !lock_name.ends_with(kLockSuffix)) return {};
  return lock_name.substr(1, lock_name.size() - 1 - kLockSuffix.size());
}

std::string DirStore::watch_path(const std::string& folder) const {
  return "/proc/self/fd/" + std::to_string(root_.get()) + "/" + folder;
}

}  // namespace fo::fleet
