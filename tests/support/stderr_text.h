// The log of this process during a test, as an event that the test can wait for.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/unique_fd.h"

namespace fo::test {

/// Collects what is written to stderr while it lives.
class StderrText {
 public:
  StderrText() { EXPECT_GE(::dup2(text_.get(), STDERR_FILENO), 0); }
  StderrText(const StderrText&) = delete;
  StderrText& operator=(const StderrText&) = delete;
  ~StderrText() { ::dup2(before_.get(), STDERR_FILENO); }

  [[nodiscard]] std::string text() const {
    std::string text;
    std::array<char, 4096> bytes{};
    ssize_t got = 0;
    while ((got = ::pread(text_.get(), bytes.data(), bytes.size(),
                          static_cast<off_t>(text.size()))) > 0) {
      text.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return text;
  }
  [[nodiscard]] bool contains(const std::string& part) const {
    return text().find(part) != std::string::npos;
  }

 private:
  base::UniqueFd before_{::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)};
  base::UniqueFd text_{::memfd_create("stderr", MFD_CLOEXEC)};
};

}  // namespace fo::test
