#include "loop/acceptor.h"

#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "loop/adopt.h"
#include "os/file/file.h"

namespace fo::loop {
namespace {

namespace asio = boost::asio;

constexpr unsigned kAtOnce = 16;
constexpr auto kTryAgain = std::chrono::milliseconds(250);

}  // namespace

Acceptor::Acceptor(const asio::any_io_executor& executor, base::UniqueFd listener, std::string what)
    : listener_(executor), room_(executor), what_(std::move(what)) {
  adopt(listener_, std::move(listener), "watch the listening socket");
  listener_.native_non_blocking(true);
}

asio::awaitable<base::UniqueFd> Acceptor::next(const std::function<bool()>& is_full,
                                               const std::function<bool()>& make_room) {
  boost::system::error_code error;
  if (++accepted_ % kAtOnce == 0)
    co_await asio::post(listener_.get_executor(), asio::use_awaitable);
  while (listener_.is_open()) {
    if (is_full()) {
      co_await room_.wait(base::Deadline::after(kTryAgain));
      continue;
    }
    base::UniqueFd client(
        ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client) co_return client;
    const int err = errno;
    const bool is_exhausted = base::is_exhausted({err, std::generic_category()});
    // The kernel allocates the descriptor before it looks for a client, so a lack of descriptors
    // does not mean that a client waits.
    if (err == EAGAIN || (is_exhausted && !os::is_readable(listener_.native_handle()))) {
      co_await listener_.async_wait(asio::posix::descriptor_base::wait_read,
                                    asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    // The client has closed its connection already.
    if (err == EINTR || err == ECONNABORTED || err == EPROTO) continue;
    if (is_exhausted && make_room && make_room()) continue;
    const std::string reason = std::generic_category().message(err);
    log_limit_.log(os::LogLevel::kWarning, reason, what_ + ": " + reason);
    co_await room_.wait(base::Deadline::after(kTryAgain));
  }
  co_return base::UniqueFd();
}

base::UniqueFd Acceptor::release() {
  base::UniqueFd listener;
  if (listener_.is_open()) listener.reset(listener_.release());
  room_.notify();
  return listener;
}

}  // namespace fo::loop
