#include "loop/alarm.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "loop/test_loop.h"

namespace fo::loop {
namespace {

using base::Deadline;
using std::chrono::hours;
using test::TestLoop;

class AlarmTest : public testing::Test {
 protected:
  Deadline now() { return Deadline::after(base::Duration::zero()); }

  TestLoop loop_;
  int rings_ = 0;
};

TEST_F(AlarmTest, RingsOnceAtItsDeadline) {
  Alarm alarm(loop_.io().get_executor());
  alarm.set(now(), [this] { ++rings_; });
  loop_.run_to_end();
  EXPECT_EQ(rings_, 1);
}

TEST_F(AlarmTest, WithoutADeadlineItNeverRings) {
  Alarm alarm(loop_.io().get_executor());
  alarm.set(now(), [this] { ++rings_; });
  alarm.set(Deadline::never(), [this] { ++rings_; });
  loop_.run_to_end();
  EXPECT_EQ(rings_, 0);
}

TEST_F(AlarmTest, TheLastSettingCounts) {
  Alarm alarm(loop_.io().get_executor());
  int last = 0;
  alarm.set(Deadline::after(hours(1)), [this] { ++rings_; });
  alarm.set(now(), [&] { ++last; });
  loop_.run_to_end();
  EXPECT_EQ(rings_, 0);
  EXPECT_EQ(last, 1);
}

TEST_F(AlarmTest, ItsFunctionMaySetItAgainAndDestroyIt) {
  auto alarm = std::make_unique<Alarm>(loop_.io().get_executor());
  alarm->set(now(), [&] {
    ++rings_;
    alarm->set(now(), [&] {
      ++rings_;
      alarm.reset();
    });
  });
  loop_.run_to_end();
  EXPECT_EQ(rings_, 2);
  EXPECT_FALSE(alarm);
}

// Both deadlines have passed when the loop looks, so that the handler of the second alarm is in the
// queue when the first one rings.
TEST_F(AlarmTest, OneThatIsQueuedCanBeCancelledSetAgainAndDestroyed) {
  for (const int how : {0, 1, 2}) {
    std::optional<Alarm> second(std::in_place, loop_.io().get_executor());
    Alarm first(loop_.io().get_executor());
    first.set(now(), [&] {
      if (how == 0) second->cancel();
      if (how == 1) second->set(Deadline::after(hours(1)), [this] { ++rings_; });
      if (how == 2) second.reset();
    });
    second->set(now(), [this] { ++rings_; });
    loop_.run_ready();
    EXPECT_EQ(rings_, 0) << how;
  }
}

}  // namespace
}  // namespace fo::loop
