// Counts and limits this process's open descriptors, for tests of their ownership.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <vector>

#include "base/unique_fd.h"

namespace fo::test {

inline std::ptrdiff_t open_fds() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// A fixture whose tests must leave the number of open descriptors unchanged.
class FdCounting : public testing::Test {
 protected:
  ~FdCounting() override { EXPECT_EQ(open_fds(), before_) << "descriptors leaked or lost"; }

 private:
  std::ptrdiff_t before_ = open_fds();
};

/// During its life, this process can open no descriptor, or at most `count`.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t count = 0) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    // Inherited descriptors may have gaps between them.
    std::vector<base::UniqueFd> next(count + 1);
    for (base::UniqueFd& fd : next) fd.reset(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    const rlimit few{static_cast<rlim_t>(next.back().get()), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace fo::test
