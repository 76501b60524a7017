// What the tests of this room share.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "support/failure.h"

namespace fo::os::test {

using fo::test::Failure;
using fo::test::failure_of;

inline base::Deadline soon() { return base::Deadline::after(std::chrono::seconds(30)); }

/// All that can be read until the end.
inline std::string read_to_end(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

struct Pipe {
  base::UniqueFd reader;
  base::UniqueFd writer;
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
};

}  // namespace fo::os::test
