// Runs a blocking call on its own thread while the loop continues.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/asio/awaitable.hpp>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <variant>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "loop/event.h"

namespace fo::loop {

/// Runs `body` on a thread, and returns or throws its result on the loop. The thread does not touch
/// the loop. If the caller is destroyed meanwhile, its destruction waits for `body`, so callers
/// must make sure that `body` ends. Signals must be blocked. Throws kTryAgain if the thread cannot
/// be started.
template <typename T>
boost::asio::awaitable<T> run_blocking(std::function<T()> body) {
  std::optional<std::conditional_t<std::is_void_v<T>, std::monostate, T>> result;
  std::exception_ptr failure;
  base::UniqueFd done(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!done) base::throw_errno(errno, "create an eventfd");
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
  // A wait may end early.
  std::uint64_t count = 0;
  while (::read(done.get(), &count, sizeof count) != sizeof count) {
    co_await until_ready(done.get(), POLLIN, base::Deadline::never());
  }
  thread.join();
  if (failure) std::rethrow_exception(failure);
  if constexpr (!std::is_void_v<T>) co_return std::move(*result);
}

}  // namespace fo::loop
