// The folder that a snapshot is written into: beside its place, under another name, until it is
// complete. Whoever looks at its place sees a whole snapshot or none, whenever the writer dies.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace fo::weights {

enum class Replace { kNo, kYes };

/// Throws Error(kCannotCreate) when a snapshot can't take this place: it has no name, no
/// folder to be in, is a mount point, or something is there that is neither an empty folder nor,
/// with kYes, one that holds a snapshot and nothing else.
void check_snapshot_place(const std::string& place, Replace replace);

class SnapshotFolder {
 public:
  /// Makes PLACE.partial-<random>, locked for as long as this process lives, with the mode and the
  /// group of the folder that is in its place, and its owner where that may be; and removes what is
  /// left of those for the same place whose process is dead. Throws what check_snapshot_place does,
  /// kCannotCreate, kNotPermitted or kIoError.
  SnapshotFolder(std::string place, Replace replace);
  /// Removes what was not published.
  ~SnapshotFolder();
  SnapshotFolder(const SnapshotFolder&) = delete;
  SnapshotFolder& operator=(const SnapshotFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Moves it to its place in one step; what it replaces is removed once that is on the disk. Its
  /// content is the caller's to have there. Throws kCannotCreate, and nothing has changed, when
  /// another snapshot came there first; kIoError, and it is in its place, when that may not last.
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

/// Throws Error(kIoError) when what was done in a folder can't be made to last.
void sync_folder(const std::string& path);

}  // namespace fo::weights
