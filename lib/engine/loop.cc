#include "engine/loop.h"

#include <fcntl.h>
#include <poll.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <memory>
#include <optional>

#include "base/error.h"

namespace fo::engine {

namespace asio = boost::asio;
using asio::awaitable;
using asio::steady_timer;
using Descriptor = asio::posix::stream_descriptor;

namespace {

steady_timer::time_point time_of(const base::Deadline& deadline) {
  return deadline.at().value_or(steady_timer::time_point::max());
}

}  // namespace

awaitable<void> Event::wait(base::Deadline deadline) {
  const std::shared_ptr<steady_timer> timer = timer_;
  steady_timer limit(timer->get_executor());
  if (!deadline.is_never()) {
    limit.expires_at(time_of(deadline));
    // Wakes the others, too: they look, and wait again.
    limit.async_wait([timer](const boost::system::error_code& error) {
      if (!error) timer->cancel();
    });
  }
  boost::system::error_code ignored;
  co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

awaitable<void> pause(base::Duration duration) {
  steady_timer timer(co_await asio::this_coro::executor, duration);
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

awaitable<void> until_ready(int fd, short events, base::Deadline deadline) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const auto timer = std::make_shared<steady_timer>(executor, time_of(deadline));
  std::optional<Descriptor> descriptor;
  if (fd >= 0) {
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) base::throw_errno(errno, "watch a descriptor");
    descriptor.emplace(executor, copy);
    const auto wanted = (events & POLLOUT) != 0 ? Descriptor::wait_write : Descriptor::wait_read;
    descriptor->async_wait(wanted, [timer](const boost::system::error_code& error) {
      if (!error) timer->cancel();
    });
  }
  boost::system::error_code ignored;
  co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace fo::engine
