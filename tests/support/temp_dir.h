// A folder of its own for a test or a measuring program, with a path short enough for sockets;
// removed at the end.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.h"

namespace fo::test {

class TempDir {
 public:
  explicit TempDir(const std::string& parent = "/tmp") : path_(parent + "/fo.XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) {
      base::throw_errno(errno, "create a folder in " + base::quoted(parent));
    }
  }
  ~TempDir() {
    // Processes that still run may write meanwhile.
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] std::string path(const std::string& name = "") const {
    return name.empty() ? path_ : path_ + "/" + name;
  }

 private:
  std::string path_;
};

}  // namespace fo::test
