#include "loop/event.h"

#include <poll.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>

#include "base/error.h"

namespace fo::loop {

namespace asio = boost::asio;
using asio::awaitable;
using asio::steady_timer;
using Descriptor = asio::posix::stream_descriptor;

namespace {

steady_timer::time_point time_of(const base::Deadline& deadline) {
  return deadline.at().value_or(steady_timer::time_point::max());
}

// A descriptor that the loop watches without owning it. It is not duplicated, because clients may
// use up all other descriptors.
class Lent {
 public:
  explicit Lent(const asio::any_io_executor& executor) : descriptor_(executor) {}
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() {
    if (descriptor_.is_open()) static_cast<void>(descriptor_.release());
  }
  Descriptor& watch(int fd) {
    boost::system::error_code error;
    descriptor_.assign(fd, error);
    if (error) throw base::Error(base::ExitStatus::kOsError, "watch a descriptor", error);
    return descriptor_;
  }

 private:
  Descriptor descriptor_;
};

}  // namespace

awaitable<void> Event::wait(base::Deadline deadline) {
  const std::shared_ptr<steady_timer> timer = timer_;
  steady_timer limit(timer->get_executor());
  if (!deadline.is_never()) {
    limit.expires_at(time_of(deadline));
    // Wakes the other waiters, too; they check and wait again.
    limit.async_wait([timer](const boost::system::error_code& error) {
      if (!error) timer->cancel();
    });
  }
  boost::system::error_code ignored;
  co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

awaitable<void> until_ready(int fd, short events, base::Deadline deadline) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const auto timer = std::make_shared<steady_timer>(executor, time_of(deadline));
  Lent lent(executor);
  if (fd >= 0) {
    const auto wanted = (events & POLLOUT) != 0 ? Descriptor::wait_write : Descriptor::wait_read;
    lent.watch(fd).async_wait(wanted, [timer](const boost::system::error_code& error) {
      if (!error) timer->cancel();
    });
  }
  boost::system::error_code ignored;
  co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace fo::loop
