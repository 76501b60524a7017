// Wakes a holder when something happens in the folder of its lock file, so that a replaced file is
// noticed at once and not at the next look.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace fo::lock {

class PathWatch {
 public:
  /// Watches the folder of `path`. Where the kernel refuses (inotify limits), fd() is -1 and the
  /// holder has its periodic look alone.
  explicit PathWatch(const std::string& path);
  /// Readable when a file was created, removed or renamed there.
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Takes the events; what they say does not matter, the path itself is looked at.
  void drain() const;

 private:
  base::UniqueFd fd_;
};

}  // namespace fo::lock
