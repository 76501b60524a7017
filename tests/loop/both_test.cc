#include "loop/both.h"

#include <gtest/gtest.h>

#include <boost/asio/cancellation_signal.hpp>
#include <exception>
#include <stdexcept>

#include "loop/pause.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"

namespace fo::loop {
namespace {

using boost::asio::awaitable;

// Ends at the cancellation, and counts itself.
awaitable<void> wait_and_count(int& ended) {
  try {
    co_await pause_for(std::chrono::hours(1));
  } catch (...) {
    ++ended;
    throw;
  }
}

awaitable<void> end_at_once() { co_return; }
awaitable<void> fail_at_once() {
  throw std::runtime_error("as a test requires");
  co_return;
}

TEST(RunBoth, TheEndOfOneEndsTheOther) {
  test::TestLoop loop;
  int ended = 0;
  loop.run(run_both(end_at_once(), wait_and_count(ended)));
  EXPECT_EQ(ended, 1);
  loop.run(run_both(wait_and_count(ended), end_at_once()));
  EXPECT_EQ(ended, 2);
}

TEST(RunBoth, AFailureOfEitherIsPassedOn) {
  test::TestLoop loop;
  int ended = 0;
  EXPECT_THROW(loop.run(run_both(fail_at_once(), wait_and_count(ended))), std::runtime_error);
  EXPECT_THROW(loop.run(run_both(wait_and_count(ended), fail_at_once())), std::runtime_error);
  EXPECT_EQ(ended, 2);
}

TEST(RunBoth, ACancellationEndsBoth) {
  test::TestLoop loop;
  int ended = 0;
  bool is_over = false;
  boost::asio::cancellation_signal cancel;
  loop::spawn(
      loop.io(), run_both(wait_and_count(ended), wait_and_count(ended)),
      [&](const std::exception_ptr& error) { is_over = error != nullptr; }, cancel.slot());
  loop.run_ready();
  cancel.emit(boost::asio::cancellation_type::terminal);
  loop.run_until([&] { return is_over; });
  EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace fo::loop
