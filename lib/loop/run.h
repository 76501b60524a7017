// Runs a coroutine to its end, for a caller that has no loop of its own and may block.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <optional>
#include <utility>

#include "loop/spawn.h"

namespace fo::loop {

/// Runs `task` on `loop`, which must not be running, until the task and everything that it started
/// there have ended. Throws what the task throws.
void run_to_end(boost::asio::io_context& loop, boost::asio::awaitable<void> task);

/// The same as above; returns the result of the task.
template <typename Result>
Result run_to_end(boost::asio::io_context& loop, boost::asio::awaitable<Result> task) {
  std::optional<Result> result;
  run_to_end(loop, store(std::move(task), result));
  return std::move(*result);
}

/// The same on a loop that ends with the call. So `task` owns the connections and clients that it
/// uses: they must not outlive their loop.
template <typename Result>
Result run_to_end(boost::asio::awaitable<Result> task) {
  boost::asio::io_context loop(1);
  return run_to_end(loop, std::move(task));
}

}  // namespace fo::loop
