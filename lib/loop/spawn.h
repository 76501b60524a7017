// Starts coroutines without a result. Each use of Asio's co_spawn takes seconds to compile; this
// one is compiled once.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

namespace fo::loop {

/// Receives what a coroutine has thrown, or nothing.
using SpawnHandler = std::function<void(std::exception_ptr)>;

/// Starts `task` on `executor`, and calls `on_end` there at its end; without that, what it throws
/// is ignored. A signal of `cancel` cancels it.
void spawn(boost::asio::any_io_executor executor, boost::asio::awaitable<void> task,
           SpawnHandler on_end = nullptr, boost::asio::cancellation_slot cancel = {});
inline void spawn(boost::asio::io_context& loop, boost::asio::awaitable<void> task,
                  SpawnHandler on_end = nullptr, boost::asio::cancellation_slot cancel = {}) {
  spawn(loop.get_executor(), std::move(task), std::move(on_end), cancel);
}

/// A coroutine without a result that ignores what `task` returns.
template <typename Result>
boost::asio::awaitable<void> without_result(boost::asio::awaitable<Result> task) {
  co_await std::move(task);
}

/// A coroutine without a result that stores what `task` returns. `result` must outlive it.
template <typename Result>
boost::asio::awaitable<void> store(boost::asio::awaitable<Result> task,
                                   std::optional<Result>& result) {
  result = co_await std::move(task);
}

}  // namespace fo::loop
