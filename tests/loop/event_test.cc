#include "loop/event.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "loop/pause.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "os/file/pipe.h"
#include "support/fds.h"
#include "support/must_run.h"
#include "support/sanitizers.h"

namespace fo::loop {
namespace {

using base::Deadline;
using boost::asio::awaitable;
using test::in_ms;
using test::soon;

class LoopTest : public test::FdCounting {
 protected:
  test::TestLoop loop_;
  os::Pipe pipe_;
};

awaitable<void> count_one(Event& event, Deadline deadline, int& count) {
  co_await event.wait(deadline);
  ++count;
}

TEST_F(LoopTest, AnEventWakesAllThatWait) {
  Event event(loop_.io().get_executor());
  int woken = 0;
  for (const Deadline& deadline : {soon(), Deadline::never(), soon()}) {
    loop::spawn(loop_.io(), count_one(event, deadline, woken));
  }
  loop_.run_ready();
  EXPECT_EQ(woken, 0);
  event.notify();
  loop_.run_until([&] { return woken == 3; });
}

TEST_F(LoopTest, AnEventThatNobodyWaitedForIsForgotten) {
  Event event(loop_.io().get_executor());
  event.notify();
  int woken = 0;
  loop::spawn(loop_.io(), count_one(event, soon(), woken));
  loop_.run_ready();
  EXPECT_EQ(woken, 0);
  event.notify();
  loop_.run_until([&] { return woken == 1; });
}

TEST_F(LoopTest, AWaitEndsAtItsDeadline) {
  Event event(loop_.io().get_executor());
  loop_.run(event.wait(in_ms(1)));
  loop_.run(event.wait(in_ms(-1)));
}

TEST_F(LoopTest, ADescriptorIsWaitedForAndStaysTheCallers) {
  ASSERT_EQ(::write(pipe_.writer.get(), "x", 1), 1);
  loop_.run(until_ready(pipe_.reader.get(), POLLIN, Deadline::never()));
  loop_.run(until_ready(pipe_.writer.get(), POLLOUT, Deadline::never()));
  char got = 0;
  EXPECT_EQ(::read(pipe_.reader.get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
}

TEST_F(LoopTest, TheEndOfAPipeIsReady) {
  pipe_.writer.reset();
  loop_.run(until_ready(pipe_.reader.get(), POLLIN, Deadline::never()));
}

TEST_F(LoopTest, AWaitNeedsNoDescriptorOfItsOwn) {
  if (test::kHasSanitizers) FO_SKIP("release", test::kSanitizersOpenPipes);
  loop_.run(
      pause_for(std::chrono::milliseconds(1)));  // the loop has opened all its descriptors by then
  const test::FewDescriptors none;
  for (int i = 0; i < 3; ++i)
    loop_.run(until_ready(pipe_.writer.get(), POLLOUT, Deadline::never()));
}

TEST_F(LoopTest, ADescriptorThatSaysNothingIsLeftAtTheDeadline) {
  loop_.run(until_ready(pipe_.reader.get(), POLLIN, in_ms(1)));
  loop_.run(until_ready(-1, 0, in_ms(1)));
}

}  // namespace
}  // namespace fo::loop
