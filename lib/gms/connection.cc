#include "gms/connection.h"

#include <poll.h>

#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <span>
#include <vector>

#include "base/error.h"
#include "gms/protocol.h"
#include "os/fd_passing.h"

namespace fo::gms {

namespace asio = boost::asio;
using Wait = asio::posix::descriptor_base;

Connection::Connection(asio::io_context& io, base::UniqueFd socket)
    : socket_(io, socket.release()), timer_(io) {}

Connection::Fill Connection::fill() {
  if (consumed_ > 0) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  std::array<std::byte, 64 * 1024> chunk;
  std::vector<base::UniqueFd> unwanted;
  const std::ptrdiff_t got = os::receive_with_fds(socket_.native_handle(), chunk, unwanted);
  if (got == -EAGAIN) return Fill::kEmpty;
  if (got <= 0) {
    gone_ = true;
    return Fill::kGone;
  }
  buffer_.append(reinterpret_cast<const char*>(chunk.data()), static_cast<std::size_t>(got));
  return Fill::kData;
}

asio::awaitable<bool> Connection::wait(Wait::wait_type type) {
  boost::system::error_code ec;
  co_await socket_.async_wait(type, asio::redirect_error(asio::use_awaitable, ec));
  co_return !ec && socket_.is_open();
}

void Connection::arm(base::Duration timeout) {
  timer_.expires_after(timeout);
  // A handler that is queued already can't be cancelled: it has to see that it is late.
  timer_.async_wait(
      [this, arming = std::weak_ptr(arming_), mine = ++*arming_](boost::system::error_code ec) {
        const auto current = arming.lock();
        if (!ec && current && *current == mine) close();
      });
}

void Connection::disarm() {
  ++*arming_;
  timer_.cancel();
}

asio::awaitable<std::optional<std::string_view>> Connection::read_frame(
    std::optional<base::Duration> timeout) {
  // The timer ends the socket's wait, which then reads as a client that is gone.
  if (timeout) arm(*timeout);
  std::optional<std::string_view> body;
  for (;;) {
    const std::string_view ready = std::string_view(buffer_).substr(consumed_);
    if (ready.size() >= kPrefixSize) {
      const std::size_t size = read_prefix(ready);
      if (size > kMaxRequestFrame) {
        throw base::Error(base::ExitStatus::kProtocol,
                          "read a request: a frame of " + std::to_string(size) + " bytes");
      }
      if (ready.size() - kPrefixSize >= size) {
        consumed_ += kPrefixSize + size;
        body = ready.substr(kPrefixSize, size);
        break;
      }
    }
    if (gone_ || !socket_.is_open()) break;
    if (fill() == Fill::kEmpty) {
      const bool readable = co_await wait(Wait::wait_read);
      if (!readable) break;
    }
  }
  if (timeout) disarm();
  co_return body;
}

asio::awaitable<bool> Connection::write_frame(std::string_view frame,
                                              std::vector<base::UniqueFd> fds,
                                              base::Duration timeout) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(frame));
  std::vector<int> numbers;
  numbers.reserve(fds.size());
  for (const base::UniqueFd& fd : fds) numbers.push_back(fd.get());
  bool timer_runs = false;
  while (!bytes.empty() && socket_.is_open()) {
    const std::ptrdiff_t sent = os::send_with_fds(socket_.native_handle(), bytes, numbers);
    if (sent >= 0) {
      fds.clear();
      numbers.clear();
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      continue;
    }
    if (sent != -EAGAIN) break;
    if (!timer_runs) {
      timer_runs = true;
      arm(timeout);
    }
    if (!co_await wait(Wait::wait_write)) break;
  }
  if (timer_runs) disarm();
  co_return bytes.empty();
}

asio::awaitable<void> Connection::watch_hangup() {
  watching_ = true;
  while (watching_ && !gone_ && socket_.is_open()) {
    if (fill() == Fill::kEmpty) {
      const bool readable = co_await wait(Wait::wait_read);
      if (!readable) break;
    }
    if (buffer_.size() > kMaxRequestFrame + kPrefixSize) gone_ = true;
  }
}

void Connection::stop_watching() {
  watching_ = false;
  if (socket_.is_open()) socket_.cancel();
}

bool Connection::is_alive() const {
  if (gone_ || !socket_.is_open()) return false;
  pollfd state{const_cast<asio::posix::stream_descriptor&>(socket_).native_handle(), POLLRDHUP, 0};
  return ::poll(&state, 1, 0) == 0;
}

void Connection::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace fo::gms
