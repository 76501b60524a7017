// Wakes a holder on changes in the folder of its lock file or of the mounts, so that a replaced
// file is noticed at once and not at the next periodic check.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace fo::lock {

class PathWatch {
 public:
  /// Watches the folder of `path`, and the mounts of this mount namespace. If the kernel refuses
  /// (inotify limits, no /proc), fd() is never readable or is -1, and the periodic check remains.
  explicit PathWatch(const std::string& path);
  /// Readable after a file was created, removed or renamed in the folder, or a mount was added or
  /// removed.
  [[nodiscard]] int fd() const { return either_.get(); }
  /// Reads and drops the events; callers check the path itself.
  void drain() const;

 private:
  base::UniqueFd folder_;
  base::UniqueFd mounts_;
  base::UniqueFd either_;
};

}  // namespace fo::lock
