// Counts this process's open descriptors, for tests of their ownership.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>

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

}  // namespace fo::test
