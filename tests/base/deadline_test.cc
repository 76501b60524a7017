#include "base/deadline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace fo::base {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(Deadline, NeverHasNoEnd) {
  const Deadline never = Deadline::never();
  EXPECT_TRUE(never.is_never());
  EXPECT_FALSE(never.expired());
  EXPECT_EQ(never.remaining(), std::nullopt);
  EXPECT_EQ(never.at(), std::nullopt);
  EXPECT_EQ(never.poll_timeout(), -1);
}

TEST(Deadline, ZeroAndNegativeExpireAtOnce) {
  for (const Duration duration : {Duration::zero(), Duration(-1), Duration::min()}) {
    const Deadline deadline = Deadline::after(duration);
    EXPECT_TRUE(deadline.expired());
    EXPECT_EQ(deadline.remaining(), Duration::zero());
    EXPECT_EQ(deadline.poll_timeout(), 0);
  }
}

TEST(Deadline, LongestDurationDoesNotOverflow) {
  const Deadline deadline = Deadline::after(Duration::max());
  EXPECT_FALSE(deadline.expired());
  EXPECT_GT(*deadline.remaining(), hours(24 * 365));
  EXPECT_EQ(deadline.poll_timeout(), std::numeric_limits<int>::max());
}

TEST(Deadline, OptionalDurationMayBeNever) {
  EXPECT_TRUE(Deadline::after(std::optional<Duration>()).is_never());
  EXPECT_TRUE(Deadline::after(std::optional<Duration>(Duration::zero())).expired());
}

TEST(Deadline, PollTimeoutIsRoundedUp) {
  // Otherwise a wait would spin through the last millisecond.
  const Deadline deadline = Deadline::after(hours(1));
  EXPECT_GE(milliseconds(deadline.poll_timeout()), *deadline.remaining());
}

TEST(Deadline, SoonerOfTwo) {
  const Deadline never = Deadline::never();
  const Deadline early = Deadline::after(hours(1));
  const Deadline late = Deadline::after(hours(2));
  EXPECT_EQ(early.sooner(late).at(), early.at());
  EXPECT_EQ(late.sooner(early).at(), early.at());
  EXPECT_EQ(never.sooner(late).at(), late.at());
  EXPECT_EQ(late.sooner(never).at(), late.at());
  EXPECT_TRUE(never.sooner(never).is_never());
}

}  // namespace
}  // namespace fo::base
