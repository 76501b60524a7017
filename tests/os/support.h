// What the tests of this library share.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "os/file/pipe.h"
#include "support/failure.h"
#include "support/soon.h"

namespace fo::os::test {

using fo::test::Failure;
using fo::test::failure_of;

using fo::test::soon;

/// All bytes until the end.
inline std::string read_to_end(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace fo::os::test
