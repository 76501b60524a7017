#include "base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

namespace fo::base {
namespace {

UniqueFd open_null() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesAtTheEnd) {
  int number = -1;
  {
    const UniqueFd fd = open_null();
    number = fd.get();
    ASSERT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, OwnsNothingByDefault) {
  const UniqueFd fd;
  EXPECT_FALSE(fd);
  EXPECT_EQ(fd.get(), -1);
}

TEST(UniqueFd, MoveTakesOwnership) {
  UniqueFd first = open_null();
  const int number = first.get();
  UniqueFd second(std::move(first));
  EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): that is the test
  EXPECT_EQ(second.get(), number);
  UniqueFd third = open_null();
  const int closed = third.get();
  third = std::move(second);
  EXPECT_FALSE(is_open(closed));
  EXPECT_EQ(third.get(), number);
}

TEST(UniqueFd, SurvivesMovingToItself) {
  UniqueFd fd = open_null();
  UniqueFd& same = fd;
  fd = std::move(same);
  EXPECT_TRUE(is_open(fd.get()));
}

TEST(UniqueFd, ReleaseGivesUpAndResetReplaces) {
  UniqueFd fd = open_null();
  const int number = fd.release();
  EXPECT_TRUE(is_open(number));
  fd.reset(number);
  fd.reset();
  EXPECT_FALSE(is_open(number));
}

}  // namespace
}  // namespace fo::base
