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
  /// True unless `path` is the folder that was opened.
  [[nodiscard]] bool is_replaced() const;
  /// Opens `path` again if the folder was replaced. Throws what the constructor throws.
  void reopen(bool create);

  /// Identifies one version of a file.
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
    /// True if the process that keeps the record lives; always true for persistent kinds.
    bool is_alive = true;
  };
  /// The path of a record's file: `path` is relative to the folder that is open as `folder`.
  struct RecordPath {
    int folder;
    std::string_view path;
    std::string_view key;
  };
  [[nodiscard]] RecordPath record_path_of(std::string_view key) const {
    return {root_.get(), key, key};
  }
  /// Opens the present version of a record; nullopt if the record has no file, or one that is not a
  /// regular file. Takes no lock. Throws the status of the errno.
  [[nodiscard]] std::optional<Entry> find(const RecordPath& record_path) const;
  [[nodiscard]] std::optional<Entry> find(std::string_view key) const {
    return find(record_path_of(key));
  }
  /// Reads the text of that version. At most kMaxRecordBytes + 1 bytes are read, which suffices to
  /// refuse a longer text. `key` is for messages. Throws kIoError and the like.
  [[nodiscard]] std::string read(const Entry& entry, std::string_view key) const;

  /// Calls `on_record` for the records below `folder` ("" is the whole registry) whose keys begin
  /// with `prefix`, and `on_folder` for each folder that may contain some, before it is read. The
  /// paths are valid during the call. Does nothing if the folder does not exist. If a folder
  /// cannot be read, it throws the status of the errno.
  void walk(const std::string& folder, std::string_view prefix,
            const std::function<void(const std::string&)>& on_folder,
            const std::function<void(const RecordPath&)>& on_record) const;

  /// Locks the folder of `key` until the returned descriptor is closed; an invalid descriptor if
  /// another process has the lock. The folder is created if it does not exist.
  [[nodiscard]] base::UniqueFd try_lock_folder(const std::string& key) const;

  // --- With the lock of the key's folder:

  /// Creates or replaces the record's file. Throws the status of the errno.
  void write(const std::string& key, std::string_view text) const;
  /// Removes the record's file; false if it does not exist. Throws the status of the errno.
  bool remove(const std::string& key) const;
  /// Locks the file beside the record for this process, until the returned descriptor is closed; an
  /// invalid descriptor if another process has the lock.
  [[nodiscard]] base::UniqueFd try_lock_record(const std::string& key) const;
  /// Removes the files in the key's folder that are over a minute old and were left by processes
  /// that have ended. Does so at most once a minute, because it examines all files of the folder.
  void clean(const std::string& key) const;

  /// True if the file that `record_lock`, the result of try_lock_record(), locks is still the one
  /// beside the record.
  [[nodiscard]] bool is_locked_by(int record_lock, const std::string& key) const;
  /// For the name of a lock file, the name of its record; empty for other names.
  static std::string_view record_of(std::string_view lock_name);
  /// The path of a folder of this registry for inotify: "/proc/self/fd/N/FOLDER", which is in the
  /// opened folder even if `path` was replaced.
  [[nodiscard]] std::string watch_path(const std::string& folder) const;

 private:
  // The file with this path in the folder of `record_path`; invalid if there is none, or a link.
  [[nodiscard]] base::UniqueFd find_file(const RecordPath& record_path,
                                         const std::string& path) const;
  [[nodiscard]] bool is_locked(const RecordPath& record_path) const;
  void make_folders(const std::string& key) const;
  [[noreturn]] void fail(int err, const std::string& action, std::string_view key) const;

  std::string path_;
  base::UniqueFd root_;
};

}  // namespace fo::fleet
