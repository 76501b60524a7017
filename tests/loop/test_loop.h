// A test's event loop: runs a coroutine to its end on the test's own thread.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <csignal>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "loop/run.h"
#include "loop/spawn.h"
#include "os/process/signals.h"
#include "support/soon.h"

namespace fo::test {

inline base::Deadline in_ms(int count) {
  return base::Deadline::after(std::chrono::milliseconds(count));
}

/// The status of the Error that `call` throws; kOk without one.
template <typename Result>
boost::asio::awaitable<base::ExitStatus> status_of(boost::asio::awaitable<Result> call) {
  try {
    co_await std::move(call);
  } catch (const base::Error& error) {
    co_return error.status();
  }
  co_return base::ExitStatus::kOk;
}

class TestLoop {
 public:
  TestLoop() { os::block_signals(os::signal_set({SIGCHLD})); }

  boost::asio::io_context& io() { return io_; }

  /// Returns or throws the result of the coroutine.
  template <typename Result>
  Result run(boost::asio::awaitable<Result> body) {
    std::optional<Result> result;
    run(loop::store(std::move(body), result));
    return std::move(*result);
  }
  void run(boost::asio::awaitable<void> body) {
    std::exception_ptr failure;
    loop::spawn(io_, std::move(body), [&](std::exception_ptr thrown) {
      failure = std::move(thrown);
      io_.stop();
    });
    go(failure);
  }

  /// Runs what is ready, and what becomes ready by that.
  void run_ready() {
    io_.restart();
    io_.poll();
  }
  /// Runs until nothing is under way.
  void run_to_end() {
    io_.restart();
    io_.run_until(*soon().at());
    EXPECT_TRUE(io_.stopped());
  }

  /// Runs until `done` returns true; fails the test if it never does.
  void run_until(const std::function<bool()>& done) {
    const base::Deadline deadline = soon();
    // Called once for each result, because it may be true for a moment only.
    bool is_done = done();
    for (; !is_done && !deadline.expired(); is_done = done()) {
      io_.restart();
      io_.run_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(is_done);
  }

 private:
  void go(const std::exception_ptr& failure) {
    io_.restart();
    io_.run();
    if (failure) std::rethrow_exception(failure);
  }

  boost::asio::io_context io_{1};
};

}  // namespace fo::test
