// Wakes a holder when something happens in the folder of its lock file, or to what is mounted, so
// that a replaced file is noticed at once and not at the next look.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace fo::lock {

class PathWatch {
 public:
  /// Watches the folder of `path`, and the mounts of this mount namespace. Where the kernel refuses
  /// (inotify limits, no /proc), fd() stays silent or is -1, and the holder has its periodic look.
  explicit PathWatch(const std::string& path);
  /// Readable when a file was created, removed or renamed there, or something was mounted or
  /// unmounted anywhere.
  [[nodiscard]] int fd() const { return either_.get(); }
  /// Takes the events; what they say does not matter, the path itself is looked at.
  void drain() const;

 private:
  base::UniqueFd folder_;
  base::UniqueFd mounts_;
  base::UniqueFd either_;
};

}  // namespace fo::lock
