// The files of a registry in a folder. A record's file is its key, below the folder, and is
// replaced by rename. Beside the record of a process is a file that the process holds locked as
// long as it lives: ".ID.lock". Changes of records exclude one another by flock(2) on their folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace fo::fleet {

class DirStore {
 public:
  /// Opens the folder `path`; with `create`, it is created with mode 0700 if it does not exist.
  /// Throws kNotPermitted if it has an owner other than this user and root, or others may write to
  /// it; kUnavailable if it does not exist or is not a folder.
  DirStore(std::string path, bool create);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// True if `path` is no longer the folder that was opened.
  [[nodiscard]] bool is_replaced() const;
  /// Opens it again if it was replaced. Throws what the constructor throws.
  void reopen(bool create);

  /// Which version of a file one has seen.
  struct Stamp {
    std::uint64_t inode = 0;
    std::int64_t changed_ns = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  /// One version of a record's file, which is open.
  struct Entry {
    base::UniqueFd file;
    Stamp stamp;
    std::size_t size = 0;
    /// The process that keeps the record lives; always true for kinds that are not kept.
    bool is_alive = true;
  };
  /// The place of a record's file: `path` is relative to the folder that is open as `folder`.
  struct Place {
    int folder;
    std::string_view path;
    std::string_view key;
  };
  [[nodiscard]] Place place_of(std::string_view key) const { return {root_.get(), key, key}; }
  /// nullopt if the record has no file, or one that is not a regular file. Never takes a lock.
  /// Throws the status of the errno.
  [[nodiscard]] std::optional<Entry> find(const Place& place) const;
  [[nodiscard]] std::optional<Entry> find(std::string_view key) const {
    return find(place_of(key));
  }
  /// The text of that version, but at most one byte more than kMaxRecordBytes of it; `key` is for
  /// messages. Throws kIoError and the like.
  [[nodiscard]] std::string read(const Entry& entry, std::string_view key) const;

  /// Calls `on_record` for the records below `folder` ("" is the whole registry) whose keys begin
  /// with `prefix`, and `on_folder` for each folder that may contain some, before it is read. The
  /// places are valid during the call. Does nothing if there is no such folder.
  void walk(const std::string& folder, std::string_view prefix,
            const std::function<void(const std::string&)>& on_folder,
            const std::function<void(const Place&)>& on_record) const;

  /// The folder of `key`, with its lock; an invalid descriptor while another process has the lock.
  /// The folder is created if it does not exist.
  [[nodiscard]] base::UniqueFd try_lock_folder(const std::string& key) const;

  // --- With the lock of the key's folder:

  void write(const std::string& key, std::string_view text) const;
  /// False if there is no such file.
  bool remove(const std::string& key) const;
  /// The lock of a process on its record; an invalid descriptor if another process has it.
  [[nodiscard]] base::UniqueFd try_keep(const std::string& key) const;
  /// Removes what processes that ended more than a minute ago have left in the key's folder; at
  /// most once a minute, because it looks at all of its files.
  void clean(const std::string& key) const;

  /// True if the file that `keeper` locks is the one beside the record.
  [[nodiscard]] bool is_kept_by(int keeper, const std::string& key) const;
  /// For the name of a lock file, the name of its record; empty for other names.
  static std::string_view record_of(std::string_view lock_name);
  /// A descriptor for inotify's path of a folder of this registry: "/proc/self/fd/N/FOLDER".
  [[nodiscard]] std::string watch_path(const std::string& folder) const;

 private:
  // The file with this path in the folder of `place`; invalid if there is none, or a link.
  [[nodiscard]] base::UniqueFd find_file(const Place& place, const std::string& path) const;
  [[nodiscard]] bool is_locked(const Place& place) const;
  void make_folders(const std::string& key) const;
  [[noreturn]] void fail(int err, const std::string& action, std::string_view key) const;

  std::string path_;
  base::UniqueFd root_;
};

}  // namespace fo::fleet
