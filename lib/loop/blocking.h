// A call that blocks, made on a thread of its own while the loop goes on.
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
#include <thread>

#include "base/error.h"
#include "base/unique_fd.h"
#include "loop/adopt.h"

namespace fo::loop {

/// Runs `body` on a thread and returns what it returns, or throws what it throws, on the loop. The
/// thread touches nothing of the loop. Where the caller is destroyed meanwhile, that waits for
/// `body`: whoever calls this sees to it that it ends. Signals must be blocked.
template <typename T>
boost::asio::awaitable<T> run_blocking(std::function<T()> body) {
  namespace asio = boost::asio;
  std::optional<T> result;
  std::exception_ptr failure;
  base::UniqueFd done(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!done) base::throw_errno(errno, "create an eventfd");
  const std::string what = "watch an eventfd";
  asio::posix::stream_descriptor event(co_await asio::this_coro::executor);
  adopt(event, duplicate(done.get(), what), what);
  std::jthread thread([&] {
    try {
      result.emplace(body());
    } catch (...) {
      failure = std::current_exception();
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(done.get(), &one, sizeof one);
  });
  // To be woken means nothing: asio may hand on what another descriptor was woken for.
  std::uint64_t count = 0;
  while (::read(done.get(), &count, sizeof count) != sizeof count) {
    boost::system::error_code ignored;
    co_await event.async_wait(asio::posix::stream_descriptor::wait_read,
                              asio::redirect_error(asio::use_awaitable, ignored));
  }
  thread.join();
  if (failure) std::rethrow_exception(failure);
  co_return std::move(*result);
}

}  // namespace fo::loop
