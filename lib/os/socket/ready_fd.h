// The descriptor on which a daemon reports that it is ready (--ready-fd).
#pragma once

#include <string_view>

#include "base/unique_fd.h"

namespace fo::os {

class ReadyFd {
 public:
  ReadyFd() = default;
  /// Takes ownership of `fd`, which becomes CLOEXEC; -1 for none. Throws Error(kUsage) if it is not
  /// open.
  explicit ReadyFd(int fd);

  /// Writes `line` and closes the descriptor. Later calls do nothing. Throws as os::write_all.
  void announce(std::string_view line = "\n");

 private:
  base::UniqueFd fd_;
};

}  // namespace fo::os
