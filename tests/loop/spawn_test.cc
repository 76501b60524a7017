#include "loop/spawn.h"

#include <gtest/gtest.h>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "loop/pause.h"

namespace fo::loop {
namespace {

using boost::asio::awaitable;

awaitable<void> throw_an_error() {
  throw base::Error(base::ExitStatus::kSoftware, "it fails");
  co_return;
}

awaitable<void> do_nothing() { co_return; }

awaitable<int> return_seven() { co_return 7; }

awaitable<int> throw_instead_of_seven() {
  co_await throw_an_error();
  co_return 7;
}

TEST(Spawn, BeginsOnTheLoopAndTellsItsEnd) {
  boost::asio::io_context loop(1);
  std::optional<std::thread::id> ended_on;
  spawn(loop, do_nothing(), [&](const std::exception_ptr& thrown) {
    EXPECT_FALSE(thrown);
    ended_on = std::this_thread::get_id();
  });
  EXPECT_FALSE(ended_on) << "before the loop ran";
  std::thread other([&] { loop.run(); });
  const std::thread::id runner = other.get_id();
  other.join();
  EXPECT_EQ(ended_on, runner);
}

TEST(Spawn, TellsWhatWasThrown) {
  boost::asio::io_context loop(1);
  std::exception_ptr failure;
  spawn(loop, throw_an_error(), [&](std::exception_ptr thrown) { failure = std::move(thrown); });
  loop.run();
  ASSERT_TRUE(failure);
  EXPECT_THROW(std::rethrow_exception(failure), base::Error);
}

TEST(Spawn, WithoutAHandlerIgnoresWhatWasThrown) {
  boost::asio::io_context loop(1);
  spawn(loop.get_executor(), throw_an_error());
  EXPECT_NO_THROW(loop.run());
}

TEST(Spawn, AHandlersExceptionEndsTheRun) {
  boost::asio::io_context loop(1);
  spawn(loop, throw_an_error(),
        [](const std::exception_ptr& thrown) { std::rethrow_exception(thrown); });
  EXPECT_THROW(loop.run(), base::Error);
}

TEST(Spawn, IsCancelledByTheSignal) {
  boost::asio::io_context loop(1);
  boost::asio::cancellation_signal cancel;
  bool is_thrown = false;
  spawn(
      loop, pause_for(std::chrono::hours(1)),
      [&](const std::exception_ptr& thrown) { is_thrown = thrown != nullptr; }, cancel.slot());
  spawn(loop, [](boost::asio::cancellation_signal& signal) -> awaitable<void> {
    signal.emit(boost::asio::cancellation_type::terminal);
    co_return;
  }(cancel));
  loop.run();
  EXPECT_TRUE(is_thrown);
}

TEST(Spawn, WhatNeverEndsIsDestroyedWithItsLoopAndTellsNothing) {
  auto kept = std::make_shared<int>();
  {
    boost::asio::io_context loop(1);
    spawn(loop, pause_for(std::chrono::hours(1)),
          [kept](const std::exception_ptr&) { ADD_FAILURE() << "it ended"; });
    loop.run_one();
    EXPECT_EQ(kept.use_count(), 2);
  }
  EXPECT_EQ(kept.use_count(), 1);
}

TEST(Spawn, AResultIsStoredOrIgnored) {
  boost::asio::io_context loop(1);
  std::optional<int> result;
  spawn(loop, store(return_seven(), result));
  spawn(loop, without_result(return_seven()));
  loop.run();
  EXPECT_EQ(result, 7);
}

TEST(Spawn, AFailureStoresNothing) {
  boost::asio::io_context loop(1);
  std::optional<int> result;
  int failures = 0;
  const auto count = [&](const std::exception_ptr& thrown) { failures += thrown != nullptr; };
  spawn(loop, store(throw_instead_of_seven(), result), count);
  spawn(loop, without_result(throw_instead_of_seven()), count);
  loop.run();
  EXPECT_FALSE(result);
  EXPECT_EQ(failures, 2);
}

}  // namespace
}  // namespace fo::loop
