#include "weights/snapshot/snapshot_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/hex.h"
#include "os/file/file.h"
#include "os/file/file_lock.h"
#include "os/file/random.h"
#include "os/log.h"
#include "weights/snapshot/snapshot_manifest.h"

namespace fo::weights {
namespace {

namespace fs = std::filesystem;
using base::Error;
using base::ExitStatus;
using base::throw_errno;

constexpr std::array kParts{kManifestFile, kMetadataFile, kChecksumFile};
constexpr const char* kPartialMark = ".partial-";
constexpr std::size_t kPartialDigits = 8;
// A separate file: on NFS, a lock of the folder itself would be visible on one machine only.
constexpr const char* kLockFile = ".lock";
constexpr const char* kShards = "shards";
constexpr const char* kProbe = "probe";

[[noreturn]] void refuse(const std::string& place, const std::string& reason) {
  throw Error(ExitStatus::kCannotCreate, "save to " + base::quoted(place) + ": " + reason);
}

ExitStatus status_of_creation(int err) {
  const ExitStatus status = base::status_of_errno(err);
  return status == ExitStatus::kNotPermitted || status == ExitStatus::kIoError
             ? status
             : ExitStatus::kCannotCreate;
}

[[noreturn]] void refuse_exchange(const std::string& place, int err) {
  if (err == EINVAL || err == ENOSYS) {
    refuse(place, "this file system can't replace a folder in one step");
  }
  throw_errno(err, status_of_creation(err), "replace " + base::quoted(place));
}

std::string folder_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

bool is_mount_point(const std::string& place, const struct stat& info) {
  struct statx more {};
  if (::statx(AT_FDCWD, place.c_str(), AT_SYMLINK_NOFOLLOW, 0, &more) == 0 &&
      (more.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) {
    return true;
  }
  struct stat parent {};
  return ::stat(folder_of(place).c_str(), &parent) == 0 && parent.st_dev != info.st_dev;
}

bool is_part(const std::string& name) {
  return name == kLockFile || std::find(kParts.begin(), kParts.end(), name) != kParts.end();
}

// The names that os::write_file_atomic uses while it writes.
bool is_temporary(const std::string& name) {
  constexpr std::size_t kSuffix = 7;
  return name.size() > kSuffix && name[name.size() - kSuffix] == '.' &&
         is_part(name.substr(0, name.size() - kSuffix));
}

// The name of an entry of the folder that does not belong to a snapshot. An entry that vanishes
// meanwhile was removed by another saver.
std::optional<std::string> unknown_entry(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    const fs::file_type type = entry.symlink_status().type();
    if (type == fs::file_type::not_found) continue;
    if (type == fs::file_type::regular && is_part(name)) continue;
    if (name != kShards || type != fs::file_type::directory) return name;
    std::error_code error;
    for (fs::directory_iterator shard(entry.path(), error), end; shard != end;
         shard.increment(error)) {
      const fs::file_type shard_type = shard->symlink_status().type();
      if (shard_type == fs::file_type::not_found) continue;
      if (shard_type != fs::file_type::regular || shard->path().extension() != ".bin") {
        return name + "/" + shard->path().filename().string();
      }
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      throw fs::filesystem_error("list", entry.path(), error);
    }
  }
  return std::nullopt;
}

// Removes only the parts of a snapshot; other files in the folder stay. The lock is removed last,
// and closed before the folder is removed, because NFS requires that.
void remove_snapshot(const std::string& folder, base::UniqueFd lock) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if ((is_part(name) && name != kLockFile) || is_temporary(name) || name == kProbe) {
      fs::remove(entry->path(), ignored);
    }
  }
  for (fs::directory_iterator shard(folder + "/" + kShards, ignored), end; shard != end;
       shard.increment(ignored)) {
    if (shard->path().extension() == ".bin") fs::remove(shard->path(), ignored);
  }
  fs::remove(folder + "/" + kShards, ignored);
  fs::remove(folder + "/" + kLockFile, ignored);
  lock.reset();
  std::error_code failed;
  fs::remove(folder, failed);
  if (failed) {
    os::log(os::LogLevel::kWarning, "remove {}: {}", base::quoted(folder), failed.message());
  }
}

enum class Lock { kOurs, kOthers, kImpossible };

// We own the folder while `lock` is open. A process that removes a folder first locks it in the
// same way.
Lock lock_folder(int folder, base::UniqueFd& lock) {
  lock.reset(::openat(folder, kLockFile, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  // ENOENT: the folder itself was removed.
  if (!lock) return errno == ENOENT ? Lock::kOthers : Lock::kImpossible;
  try {
    return os::try_lock_entry(folder, kLockFile, lock.get()) ? Lock::kOurs : Lock::kOthers;
  } catch (const Error&) {
    return Lock::kImpossible;
  }
}

base::UniqueFd open_folder(const std::string& path) {
  return base::UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool is_partial_of(const std::string& place, const std::string& name) {
  const std::string prefix = fs::path(place).filename().string() + kPartialMark;
  return name.starts_with(prefix) && name.size() == prefix.size() + kPartialDigits &&
         base::is_hex(std::string_view(name).substr(prefix.size()));
}

void remove_dead(const std::string& place) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder_of(place), ignored), end; entry != end;
       entry.increment(ignored)) {
    if (!is_partial_of(place, entry->path().filename().string())) continue;
    const base::UniqueFd folder = open_folder(entry->path().string());
    base::UniqueFd lock;
    if (folder && lock_folder(folder.get(), lock) == Lock::kOurs) {
      remove_snapshot(entry->path().string(), std::move(lock));
    }
  }
}

}  // namespace

void check_snapshot_place(const std::string& path, Replace replace) {
  const std::string place = without_slashes(path);
  const std::string name = fs::path(place).filename().string();
  if (name.empty() || name == "." || name == "..") refuse(place, "not a folder name");
  struct stat info {};
  if (::lstat(place.c_str(), &info) != 0) {
    const int err = errno;
    if (err == ENOENT && ::stat(folder_of(place).c_str(), &info) == 0) return;
    throw_errno(err, status_of_creation(err), "save to " + base::quoted(place));
  }
  if (!S_ISDIR(info.st_mode)) refuse(place, "it exists and is not a folder");
  if (is_mount_point(place, info)) refuse(place, "it is a mount point");
  try {
    if (fs::is_empty(place)) return;
    if (replace == Replace::kNo) refuse(place, "it exists already");
    if (const auto unknown = unknown_entry(place)) {
      refuse(place, base::quoted(*unknown) + " in it does not belong to a snapshot");
    }
  } catch (const fs::filesystem_error& error) {
    const int err = error.code().value();
    throw_errno(err, status_of_creation(err), "save to " + base::quoted(place));
  }
}

void sync_folder(const std::string& path) {
  const base::UniqueFd fd = os::open_file(path, O_RDONLY | O_DIRECTORY);
  if (::fsync(fd.get()) != 0) {
    throw_errno(errno, ExitStatus::kIoError, "write " + base::quoted(path));
  }
}

SnapshotFolder::SnapshotFolder(std::string place, Replace replace)
    : place_(without_slashes(std::move(place))), replace_(replace) {
  check_snapshot_place(place_, replace_);
  parent_.reset(::open(folder_of(place_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent_) {
    const int err = errno;
    throw_errno(err, status_of_creation(err), "save to " + base::quoted(place_));
  }
  remove_dead(place_);
  create();
  try {
    prepare();
  } catch (...) {
    remove_snapshot(path_, std::move(lock_));
    throw;
  }
}

// Each saver that starts meanwhile may remove one such folder.
void SnapshotFolder::create() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    path_ = place_ + kPartialMark + os::make_uuid4().substr(0, kPartialDigits);
    if (::mkdir(path_.c_str(), 0777) != 0) {
      const int err = errno;
      if (err == EEXIST) continue;
      throw_errno(err, status_of_creation(err), "create " + base::quoted(path_));
    }
    if (claim()) return;
  }
  refuse(place_, "the folders created beside it were removed each time");
}

// False if another saver removed the folder before it was locked.
bool SnapshotFolder::claim() {
  folder_ = open_folder(path_);
  if (!folder_) return false;
  const Lock lock = lock_folder(folder_.get(), lock_);
  if (lock == Lock::kImpossible && !lock_) {
    const int err = errno;
    ::rmdir(path_.c_str());
    throw_errno(err, status_of_creation(err), "create " + base::quoted(path_ + "/" + kLockFile));
  }
  return lock != Lock::kOthers;
}

// Copies owner, group and mode from the folder at the place, and detects early whether the file
// system lacks the exchange that publish() needs.
void SnapshotFolder::prepare() const {
  struct stat there {};
  if (::lstat(place_.c_str(), &there) != 0) return;
  const std::string what = "create " + base::quoted(path_);
  // Only root can change the owner; otherwise only the previous owner loses access.
  if ((::fchown(folder_.get(), there.st_uid, there.st_gid) != 0 &&
       ::fchown(folder_.get(), static_cast<uid_t>(-1), there.st_gid) != 0) ||
      ::fchmod(folder_.get(), (there.st_mode & 07777) | S_IRWXU) != 0) {
    const int err = errno;
    throw_errno(err, status_of_creation(err), what);
  }
  std::error_code ignored;
  if (fs::is_empty(place_, ignored)) return;
  if (::mkdirat(folder_.get(), kProbe, 0700) != 0 || ::mkdirat(folder_.get(), kShards, 0700) != 0) {
    const int err = errno;
    throw_errno(err, status_of_creation(err), what);
  }
  const bool exchanged =
      ::renameat2(folder_.get(), kProbe, folder_.get(), kShards, RENAME_EXCHANGE) == 0;
  const int err = errno;
  ::unlinkat(folder_.get(), kProbe, AT_REMOVEDIR);
  ::unlinkat(folder_.get(), kShards, AT_REMOVEDIR);
  if (!exchanged) refuse_exchange(place_, err);
}

SnapshotFolder::~SnapshotFolder() {
  if (!path_.empty()) remove_snapshot(path_, std::move(lock_));
}

void SnapshotFolder::publish() {
  const bool moved = move();
  if (!moved) exchange();
  const std::string replaced = std::exchange(path_, {});
  // Through its descriptor, because another folder may be at its place already.
  ::unlinkat(folder_.get(), kLockFile, 0);
  lock_.reset();
  if (::fsync(parent_.get()) != 0) {
    throw_errno(
        errno, ExitStatus::kIoError,
        "save to " + base::quoted(place_) + ": it is saved, but may not survive a power failure");
  }
  if (!moved) remove_snapshot(replaced, {});
}

// Replaces an empty folder; returns false for one that is not empty and may be replaced.
bool SnapshotFolder::move() {
  if (::rename(path_.c_str(), place_.c_str()) == 0) return true;
  const int err = errno;
  if (err != ENOTEMPTY && err != EEXIST) {
    throw_errno(err, status_of_creation(err), "save to " + base::quoted(place_));
  }
  if (replace_ == Replace::kNo) refuse(place_, "it was created by another process meanwhile");
  return false;
}

void SnapshotFolder::exchange() {
  check_snapshot_place(place_, replace_);
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, place_.c_str(), RENAME_EXCHANGE) != 0) {
    refuse_exchange(place_, errno);
  }
}

}  // namespace fo::weights
