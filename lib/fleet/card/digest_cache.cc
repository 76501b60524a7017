#include "fleet/card/digest_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/hex.h"
#include "json/object.h"
#include "os/file/file.h"
#include "os/file/input.h"
#include "os/log.h"

namespace fo::fleet {
namespace {

constexpr std::size_t kMaxEntries = 4096;
constexpr base::ByteCount kMaxBytes = base::ByteCount{4} << 20;
constexpr int kCacheVersion = 1;

std::string path_of(const std::string& folder) { return folder + "/digests.json"; }

// The content of the cache's file; "" if another user may have written it.
std::string read_own_file(const std::string& path) {
  const base::UniqueFd fd = os::open_plain_file(path, O_RDONLY, "open " + base::quoted(path));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return {};
  if (os::find_other_writer(status)) return {};
  return os::read_all(fd.get(), "read " + base::quoted(path), kMaxBytes);
}

std::string absolute_path(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && value[0] == '/' ? value : "";
}

void create_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    base::throw_cannot_create(errno, "create folder " + base::quoted(folder));
  }
}

}  // namespace

FileIdentity identity_of(const struct stat& status) {
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
          os::nanoseconds(status.st_mtim), os::nanoseconds(status.st_ctim)};
}

std::string default_cache_folder() {
  if (const std::string cache = absolute_path("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/fo";
  }
  const std::string home = absolute_path("HOME");
  return home.empty() ? "" : home + "/.cache/fo";
}

DigestCache::DigestCache(std::string folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  try {
    entries_ = parse(read_own_file(path_of(folder_)));
  } catch (const base::Error& error) {
    if (error.status() != base::ExitStatus::kNoInput) {
      os::log(os::LogLevel::kInfo, "{}: the digests in it are not used", error.what());
    }
  }
}

std::vector<DigestCache::Entry> DigestCache::parse(std::string_view text) {
  std::vector<Entry> entries;
  try {
    const nlohmann::json object = fo::json::parse_object(text, kMaxBytes);
    if (object.at("version") != kCacheVersion) return {};
    for (const nlohmann::json& one : object.at("files")) {
      Entry entry{{one.at("device").get<std::uint64_t>(), one.at("inode").get<std::uint64_t>(),
                   one.at("size").get<std::uint64_t>(), one.at("modified").get<std::int64_t>(),
                   one.at("changed").get<std::int64_t>()},
                  one.at("sha256").get<std::string>()};
      if (entry.sha256.size() != 64 || !base::is_hex(entry.sha256)) return {};
      entries.push_back(std::move(entry));
    }
  } catch (const fo::json::Misfit&) {
    return {};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return entries;
}

std::optional<std::string> DigestCache::find(const FileIdentity& file) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.file == file; });
  return found == entries_.end() ? std::nullopt : std::optional(found->sha256);
}

void DigestCache::put(const FileIdentity& file, const std::string& sha256) {
  std::erase_if(entries_, [&](const Entry& entry) {
    return entry.file.device == file.device && entry.file.inode == file.inode;
  });
  if (entries_.size() >= kMaxEntries) entries_.erase(entries_.begin());
  entries_.push_back({file, sha256});
}

void DigestCache::save() const {
  if (folder_.empty()) return;
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const auto& [file, sha256] : entries_) {
    files.push_back({{"device", file.device},
                     {"inode", file.inode},
                     {"size", file.size},
                     {"modified", file.modified},
                     {"changed", file.changed},
                     {"sha256", sha256}});
  }
  const nlohmann::ordered_json object{{"version", kCacheVersion}, {"files", std::move(files)}};
  try {
    create_folder(folder_.substr(0, folder_.rfind('/')));
    create_folder(folder_);
    os::write_file_atomic(path_of(folder_), object.dump() + "\n", 0600);
  } catch (const base::Error& error) {
    os::log(os::LogLevel::kWarning, "{}: the files will be read again next time", error.what());
  }
}

}  // namespace fo::fleet
