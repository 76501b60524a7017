// The folder that a snapshot is written into: next to its place, under another name, until it is
// complete. Readers of the place see a whole snapshot or none, whenever the writer dies.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace fo::weights {

enum class Replace { kNo, kYes };

/// Throws Error(kCannotCreate) if a snapshot cannot be put at `place`: the name or its parent
/// folder is missing, it is a mount point, or it exists and is neither an empty folder nor, with
/// kYes, a folder with a snapshot only.
void check_snapshot_place(const std::string& place, Replace replace);

class SnapshotFolder {
 public:
  /// Creates PLACE.partial-<random>, locked while this process lives, with the mode, the group and
  /// if possible the owner of the folder at `place`; removes such folders of dead processes. Throws
  /// what check_snapshot_place throws, and kCannotCreate, kNotPermitted or kIoError.
  SnapshotFolder(std::string place, Replace replace);
  /// Removes the folder unless it was published.
  ~SnapshotFolder();
  SnapshotFolder(const SnapshotFolder&) = delete;
  SnapshotFolder& operator=(const SnapshotFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Moves the folder to its place in one step, and removes the replaced one once that is on the
  /// disk. The caller must have synced its content. Throws kCannotCreate without any change if
  /// another snapshot was created there first; kIoError if the moved folder may not survive a power
  /// failure.
  void publish();

 private:
  void create();
  [[nodiscard]] bool claim();
  void prepare() const;
  [[nodiscard]] bool move();
  void exchange();

  std::string place_;
  Replace replace_;
  base::UniqueFd parent_;
  std::string path_;
  base::UniqueFd folder_;
  base::UniqueFd lock_;
};

/// Throws Error(kIoError) if changes of a folder cannot be flushed to the disk.
void sync_folder(const std::string& path);

}  // namespace fo::weights
