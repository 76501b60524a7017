// A folder for a measuring program's files; the destructor removes it.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.h"

namespace fo::bench {

class Folder {
 public:
  explicit Folder(const std::string& parent) : path_(parent + "/fo-bench-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) {
      base::throw_errno(errno, "make a folder in " + base::quoted(parent));
    }
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace fo::bench
