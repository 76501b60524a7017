// A pipe whose ends are not inherited by other programs.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/unique_fd.h"

namespace fo::os {

struct Pipe {
  /// Throws with the errno's status: "create a pipe: reason".
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) base::throw_errno(errno, "create a pipe");
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }

  base::UniqueFd reader;
  base::UniqueFd writer;
};

}  // namespace fo::os
