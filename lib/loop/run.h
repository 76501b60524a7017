// Runs a coroutine to its end, for a caller that has no loop of its own and may block.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <optional>
#include <utility>

namespace fo::loop {

/// Runs `task` on `loop`, which must not be running, until the task and everything that it started
/// there have ended. Returns or throws the result of the task.
template <typename Result>
Result run_to_end(boost::asio::io_context& loop, boost::asio::awaitable<Result> task) {
  std::exception_ptr failure;
  std::optional<Result> result;
  boost::asio::co_spawn(loop, std::move(task), [&](std::exception_ptr error, Result got) {
    failure = std::move(error);
    result = std::move(got);
  });
  loop.restart();
  loop.run();
  if (failure) std::rethrow_exception(failure);
  return std::move(*result);
}

inline void run_to_end(boost::asio::io_context& loop, boost::asio::awaitable<void> task) {
  std::exception_ptr failure;
  boost::asio::co_spawn(loop, std::move(task),
                        [&](std::exception_ptr error) { failure = std::move(error); });
  loop.restart();
  loop.run();
  if (failure) std::rethrow_exception(failure);
}

/// The same on a loop that ends with the call. So `task` owns the connections and clients that it
/// uses: they must not outlive their loop.
template <typename Result>
Result run_to_end(boost::asio::awaitable<Result> task) {
  boost::asio::io_context loop(1);
  return run_to_end(loop, std::move(task));
}

}  // namespace fo::loop
