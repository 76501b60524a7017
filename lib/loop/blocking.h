// Runs a blocking call on its own thread while the loop continues.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <variant>

#include "base/error.h"
#include "base/unique_fd.h"
#include "loop/adopt.h"

namespace fo::loop {

/// Runs `body` on a thread, and returns or throws its result on the loop. The thread does not touch
/// the loop. If the caller is destroyed meanwhile, its destruction waits for `body`, so callers
/// must make sure that `body` ends. Signals must be blocked. Throws kTryAgain if the thread cannot
/// be started.
template <typename T>
boost::asio::awaitable<T> run_blocking(std::function<T()> body) {
  namespace asio = boost::asio;
  std::optional<std::conditional_t<std::is_void_v<T>, std::monostate, T>> result;
  std::exception_ptr failure;
  base::UniqueFd done(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!done) base::throw_errno(errno, "create an eventfd");
  const std::string what = "watch an eventfd";
  asio::posix::stream_descriptor event(co_await asio::this_coro::executor);
  adopt(event, duplicate(done.get(), what), what);
  const auto run = [&] {
    try {
      if constexpr (std::is_void_v<T>) {
        body();
      } else {
        result.emplace(body());
      }
    } catch (...) {
      failure = std::current_exception();
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(done.get(), &one, sizeof one);
  };
  std::jthread thread;
  try {
    thread = std::jthread(run);
  } catch (const std::system_error& error) {
    throw base::Error(base::ExitStatus::kTryAgain, "start a thread", error.code());
  }
  // A spurious wake-up is possible: asio may pass on the event of another descriptor.
  std::uint64_t count = 0;
  while (::read(done.get(), &count, sizeof count) != sizeof count) {
    boost::system::error_code ignored;
    co_await event.async_wait(asio::posix::stream_descriptor::wait_read,
                              asio::redirect_error(asio::use_awaitable, ignored));
  }
  thread.join();
  if (failure) std::rethrow_exception(failure);
  if constexpr (!std::is_void_v<T>) co_return std::move(*result);
}

}  // namespace fo::loop
