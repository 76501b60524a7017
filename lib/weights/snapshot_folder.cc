#include "weights/snapshot_folder.h"

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
#include "os/file.h"
#include "os/file_lock.h"
#include "os/log.h"
#include "os/random.h"
#include "weights/snapshot_manifest.h"

namespace fo::weights {
namespace {

namespace fs = std::filesystem;
using base::Error;
using base::ExitStatus;
using base::throw_errno;

constexpr std::array kParts{kManifestFile, kMetadataFile, kChecksumFile};
constexpr const char* kPartialMark = ".partial-";

[[noreturn]] void refuse(const std::string& place, const std::string& reason) {
  throw Error(ExitStatus::kCannotCreate, "save to " + base::quoted(place) + ": " + reason);
}

ExitStatus status_of_creation(int err) {
  const ExitStatus status = base::status_of_errno(err);
  return status == ExitStatus::kNotPermitted || status == ExitStatus::kIoError
             ? status
             : ExitStatus::kCannotCreate;
}

std::string folder_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// The name of something in the folder that is no part of a snapshot.
std::optional<std::string> foreign_entry(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_file = entry.symlink_status().type() == fs::file_type::regular;
    const bool is_part = std::find(kParts.begin(), kParts.end(), name) != kParts.end();
    if (is_file && is_part) continue;
    if (name != "shards" || entry.symlink_status().type() != fs::file_type::directory) return name;
    for (const auto& shard : fs::directory_iterator(entry.path())) {
      if (shard.symlink_status().type() != fs::file_type::regular ||
          shard.path().extension() != ".bin") {
        return name + "/" + shard.path().filename().string();
      }
    }
  }
  return std::nullopt;
}

// Nothing but what a snapshot is made of; what else came there meanwhile stays.
void remove_snapshot(const std::string& folder) {
  std::error_code ignored;
  for (const char* part : kParts) fs::remove(folder + "/" + part, ignored);
  for (fs::directory_iterator shard(folder + "/shards", ignored), end; shard != end;
       shard.increment(ignored)) {
    if (shard->path().extension() == ".bin") fs::remove(shard->path(), ignored);
  }
  fs::remove(folder + "/shards", ignored);
  std::error_code failed;
  if (!fs::remove(folder, failed) || failed) {
    os::log(os::LogLevel::kWarning, "remove the replaced snapshot {}: {}", base::quoted(folder),
            failed.message());
  }
}

// Owned until its process ends; nullopt when another has it, or the file system has no such locks.
std::optional<base::UniqueFd> lock_folder(const std::string& path) {
  base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  try {
    if (fd && os::try_lock_file(fd.get())) return fd;
  } catch (const Error&) {
  }
  return std::nullopt;
}

void remove_dead(const std::string& place) {
  const std::string prefix = fs::path(place).filename().string() + kPartialMark;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder_of(place), ignored), end; entry != end;
       entry.increment(ignored)) {
    if (!entry->path().filename().string().starts_with(prefix)) continue;
    const auto lock = lock_folder(entry->path().string());
    if (lock) fs::remove_all(entry->path(), ignored);
  }
}

}  // namespace

void check_snapshot_place(const std::string& place, Replace replace) {
  struct stat info {};
  if (::lstat(place.c_str(), &info) != 0) {
    if (errno == ENOENT) return;
    const int err = errno;
    throw_errno(err, status_of_creation(err), "save to " + base::quoted(place));
  }
  if (!S_ISDIR(info.st_mode)) refuse(place, "it is there and no folder");
  try {
    if (fs::is_empty(place)) return;
    if (replace == Replace::kNo) refuse(place, "it is there already");
    if (const auto foreign = foreign_entry(place)) {
      refuse(place, base::quoted(*foreign) + " in it is no part of a snapshot");
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
    : place_(std::move(place)), replace_(replace) {
  while (place_.size() > 1 && place_.ends_with('/')) place_.pop_back();
  check_snapshot_place(place_, replace_);
  remove_dead(place_);
  create();
}

// Between its making and its locking somebody who removes the dead may have taken it for one.
void SnapshotFolder::create() {
  for (int attempt = 0; attempt < 10; ++attempt) {
    path_ = place_ + kPartialMark + os::make_uuid4().substr(0, 8);
    if (::mkdir(path_.c_str(), 0777) != 0) {
      const int err = errno;
      if (err == EEXIST) continue;
      throw_errno(err, status_of_creation(err), "create " + base::quoted(path_));
    }
    auto lock = lock_folder(path_);
    std::error_code ignored;
    if (!fs::exists(path_, ignored)) continue;
    if (lock) lock_ = std::move(*lock);
    return;
  }
  refuse(place_, "no folder beside it stays there");
}

SnapshotFolder::~SnapshotFolder() {
  if (path_.empty()) return;
  std::error_code failed;
  fs::remove_all(path_, failed);
  if (failed) {
    os::log(os::LogLevel::kWarning, "remove {}: {}", base::quoted(path_), failed.message());
  }
}

void SnapshotFolder::publish() {
  if (move()) {
    path_.clear();
  } else {
    exchange();
  }
  sync_folder(folder_of(place_));
}

// An empty folder gives way; false for one that doesn't and is to be replaced.
bool SnapshotFolder::move() {
  if (::rename(path_.c_str(), place_.c_str()) == 0) return true;
  const int err = errno;
  if (err != ENOTEMPTY && err != EEXIST) {
    throw_errno(err, status_of_creation(err), "save to " + base::quoted(place_));
  }
  if (replace_ == Replace::kNo) refuse(place_, "another came there meanwhile");
  return false;
}

void SnapshotFolder::exchange() {
  check_snapshot_place(place_, replace_);
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, place_.c_str(), RENAME_EXCHANGE) != 0) {
    const int err = errno;
    if (err == EINVAL || err == ENOSYS) {
      refuse(place_, "this file system can't replace a folder in one step");
    }
    throw_errno(err, status_of_creation(err), "replace " + base::quoted(place_));
  }
  remove_snapshot(std::exchange(path_, {}));
}

}  // namespace fo::weights
