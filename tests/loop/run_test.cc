#include "loop/run.h"

#include <gtest/gtest.h>

#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <string>

#include "base/error.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "support/failure.h"
#include "support/fds.h"

namespace fo::loop {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

class RunToEnd : public test::FdCounting {};

awaitable<std::string> echo(std::string text) {
  co_await pause_for(std::chrono::milliseconds(1));
  co_return text;
}

awaitable<int> fail_with_number() {
  co_await pause_for(std::chrono::milliseconds(1));
  throw base::Error(base::ExitStatus::kTryAgain, "too early");
}

awaitable<void> fail() { co_await fail_with_number(); }

awaitable<void> count(int& done) {
  co_await pause_for(std::chrono::milliseconds(1));
  ++done;
}

awaitable<void> start_another(int& done) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  loop::spawn(executor, count(done));
}

TEST_F(RunToEnd, ReturnsTheResult) { EXPECT_EQ(run_to_end(echo("a")), "a"); }

TEST_F(RunToEnd, ThrowsWhatItThrew) {
  EXPECT_EQ(test::status_of([] { run_to_end(fail_with_number()); }), base::ExitStatus::kTryAgain);
  EXPECT_EQ(test::status_of([] { run_to_end(fail()); }), base::ExitStatus::kTryAgain);
}

TEST_F(RunToEnd, WaitsForWhatItStarted) {
  int done = 0;
  run_to_end(start_another(done));
  EXPECT_EQ(done, 1);
}

TEST_F(RunToEnd, UsesOneLoopAgain) {
  asio::io_context loop(1);
  int done = 0;
  run_to_end(loop, count(done));
  EXPECT_EQ(run_to_end(loop, echo("b")), "b");
  run_to_end(loop, count(done));
  EXPECT_EQ(done, 2);
}

}  // namespace
}  // namespace fo::loop
