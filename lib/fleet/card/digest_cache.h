// The SHA-256 of files that were read before, kept in a file between runs.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fo::fleet {

/// Two equal identities are one file with the same content, if its last change is older than the
/// resolution of the file system's clock.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  /// Time of the last change in nanoseconds since 1970.
  std::int64_t modified = 0;
  std::int64_t changed = 0;

  bool operator==(const FileIdentity&) const = default;
};

FileIdentity identity_of(const struct stat& status);

/// $XDG_CACHE_HOME/fo, or ~/.cache/fo if that is not an absolute path; "" if $HOME is not one, too.
std::string default_cache_folder();

class DigestCache {
 public:
  /// Reads the cache in `folder`; "" stands for a cache that is neither read nor written. A cache
  /// that is missing, malformed, or writable by other users counts as empty.
  explicit DigestCache(std::string folder);

  /// The digest of the file, in 64 hex digits.
  [[nodiscard]] std::optional<std::string> find(const FileIdentity& file) const;
  /// Replaces the entry of the same device and inode, or the oldest one if there are too many.
  void put(const FileIdentity& file, const std::string& sha256);
  /// Replaces the file in the folder, which is created if it is missing. A failure is logged as a
  /// warning.
  void save() const;

 private:
  struct Entry {
    FileIdentity file;
    std::string sha256;
  };
  static std::vector<Entry> parse(std::string_view text);

  std::string folder_;
  /// The oldest first.
  std::vector<Entry> entries_;
};

}  // namespace fo::fleet
