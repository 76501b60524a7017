#include "net/stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "net/tls.h"

namespace fo::net {
namespace {

// After this number of writes that did not wait, the next one yields to the loop's other
// coroutines.
constexpr unsigned kMaxDirectWrites = 16;

}  // namespace

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::system::error_code;

// Ends one operation at a time when its deadline passes. Nearly every deadline is later than the
// one before it, so the timer is set again only for an earlier deadline. When it expires, it checks
// the deadline of the current operation.
class Stream::Limit : public std::enable_shared_from_this<Stream::Limit> {
 public:
  explicit Limit(const asio::any_io_executor& executor) : timer_(executor) {}

  /// Returns the slot of a new operation. Cancelling `outer`, the coroutine's slot, cancels it,
  /// too.
  asio::cancellation_slot begin(const Deadline& deadline, asio::cancellation_slot outer) {
    is_under_way_ = true;
    has_rung_ = false;
    at_ = deadline.at();
    if (at_ && (!set_for_ || *at_ < *set_for_)) set_timer(*at_);
    if (outer.is_connected()) {
      outer.assign([weak = weak_from_this()](asio::cancellation_type type) {
        if (const auto self = weak.lock()) self->cancel_.emit(type);
      });
    }
    return cancel_.slot();
  }

  void ring_now() {
    at_ = Deadline::Clock::now();
    ring();
  }

  /// True if `error` is caused by the deadline.
  bool end(const error_code& error) {
    is_under_way_ = false;
    return has_rung_ && error == asio::error::operation_aborted;
  }

 private:
  // The interval of repeated cancellations: a TLS operation between two steps of the socket misses
  // one.
  static constexpr auto kRepeatInterval = std::chrono::milliseconds(1);

  void set_timer(Deadline::Clock::time_point at) {
    set_for_ = at;
    timer_.expires_at(at);
    timer_.async_wait([weak = weak_from_this()](const error_code& error) {
      const auto self = weak.lock();
      if (!error && self) self->ring();
    });
  }

  void ring() {
    set_for_.reset();
    if (!is_under_way_ || !at_) return;
    const auto now = Deadline::Clock::now();
    if (now < *at_) return set_timer(*at_);
    has_rung_ = true;
    set_timer(now + kRepeatInterval);
    cancel_.emit(asio::cancellation_type::terminal);
  }

  asio::steady_timer timer_;
  asio::cancellation_signal cancel_;
  bool is_under_way_ = false;
  bool has_rung_ = false;
  // The deadline of the current operation, and the time that the timer is set for.
  std::optional<Deadline::Clock::time_point> at_;
  std::optional<Deadline::Clock::time_point> set_for_;
};

Stream::Stream(Socket connected, std::optional<asio::ssl::context> tls)
    : socket_(std::move(connected)),
      context_(std::move(tls)),
      reading_(std::make_shared<Limit>(socket_.get_executor())),
      writing_(std::make_shared<Limit>(socket_.get_executor())) {
  if (context_) tls_.emplace(socket_, *context_);
}

Stream::~Stream() = default;

awaitable<void> Stream::handshake(Side side, std::string host, Deadline deadline,
                                  error_code& error) {
  error = {};
  if (!tls_) co_return;
  if (side == Side::kClient) expect_host(tls_->native_handle(), host);
  const auto role =
      side == Side::kClient ? asio::ssl::stream_base::client : asio::ssl::stream_base::server;
  const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
  const asio::cancellation_slot slot = writing_->begin(deadline, state.slot());
  auto token = asio::bind_cancellation_slot(slot, asio::redirect_error(asio::use_awaitable, error));
  co_await tls_->async_handshake(role, token);
  end(*writing_, error);
}

awaitable<std::size_t> Stream::read_some(asio::mutable_buffer space, Deadline deadline,
                                         error_code& error) {
  const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
  const asio::cancellation_slot slot = reading_->begin(deadline, state.slot());
  auto token = asio::bind_cancellation_slot(slot, asio::redirect_error(asio::use_awaitable, error));
  std::size_t count = 0;
  if (tls_) {
    count = co_await tls_->async_read_some(space, token);
  } else {
    count = co_await socket_.async_read_some(space, token);
  }
  end(*reading_, error);
  direct_writes_ = 0;
  co_return count;
}

awaitable<std::size_t> Stream::read_some(const Prepare& prepare, Deadline deadline,
                                         error_code& error) {
  if (!tls_) {
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    const asio::cancellation_slot slot = reading_->begin(deadline, state.slot());
    auto token =
        asio::bind_cancellation_slot(slot, asio::redirect_error(asio::use_awaitable, error));
    co_await socket_.async_wait(Socket::wait_read, token);
    end(*reading_, error);
    direct_writes_ = 0;
    // Bytes may have arrived when the deadline had passed.
    const bool has_bytes = error == kDeadlinePassed && !is_quiet();
    if (error && !has_bytes) co_return 0;
  }
  const asio::mutable_buffer space = prepare();
  if (!tls_) {
    error.clear();
    const std::size_t count = read_directly(space, error);
    if (count > 0 || error) co_return count;
  }
  co_return co_await read_some(space, deadline, error);
}

std::size_t Stream::read_directly(asio::mutable_buffer space, error_code& error) {
  // The socket may have been closed since bytes arrived.
  if (!socket_.is_open()) {
    error = asio::error::operation_aborted;
    return 0;
  }
  const ssize_t count = ::recv(socket_.native_handle(), space.data(), space.size(), MSG_DONTWAIT);
  if (count > 0) return static_cast<std::size_t>(count);
  if (count == 0) {
    error = asio::error::eof;
  } else if (errno != EAGAIN && errno != EINTR) {
    error.assign(errno, boost::system::system_category());
  }
  return 0;
}

std::size_t Stream::write_directly(asio::const_buffer bytes, error_code& error) {
  if (!socket_.is_open()) error = asio::error::operation_aborted;
  if (error || tls_ || direct_writes_ == kMaxDirectWrites) return 0;
  ++direct_writes_;
  const ssize_t count =
      ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count >= 0) return static_cast<std::size_t>(count);
  if (errno != EAGAIN && errno != EINTR) error.assign(errno, boost::system::system_category());
  return 0;
}

awaitable<std::size_t> Stream::write(asio::const_buffer bytes, Deadline deadline,
                                     error_code& error) {
  error = {};
  // Most writes end here, and need no timer.
  std::size_t written = write_directly(bytes, error);
  if (written == bytes.size() || error) co_return written;
  const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
  direct_writes_ = 0;
  while (written < bytes.size() && !error) {
    const asio::cancellation_slot slot = writing_->begin(deadline, state.slot());
    auto token =
        asio::bind_cancellation_slot(slot, asio::redirect_error(asio::use_awaitable, error));
    const asio::const_buffer rest = bytes + written;
    std::size_t count = 0;
    if (tls_) {
      count = co_await tls_->async_write_some(rest, token);
    } else {
      count = co_await socket_.async_write_some(rest, token);
    }
    written += count;
    end(*writing_, error);
    // The caller's cancellation may come with the deadline, or between two operations.
    const bool is_cancelled = state.cancelled() != asio::cancellation_type::none;
    const bool is_complete = !error && written == bytes.size();
    if (is_cancelled && !is_complete) error = asio::error::operation_aborted;
  }
  if (error == kDeadlinePassed || error == asio::error::operation_aborted) close();
  co_return written;
}

void Stream::write_plain(std::string_view text) {
  std::ignore =
      ::send(socket_.native_handle(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Stream::interrupt_read() { reading_->ring_now(); }

awaitable<void> Stream::shut_down(Deadline deadline) {
  error_code error;
  if (tls_) {
    // Otherwise async_shutdown() would wait for the peer's close_notify.
    ::SSL_set_shutdown(tls_->native_handle(), SSL_RECEIVED_SHUTDOWN);
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    const asio::cancellation_slot slot = writing_->begin(deadline, state.slot());
    auto token =
        asio::bind_cancellation_slot(slot, asio::redirect_error(asio::use_awaitable, error));
    co_await tls_->async_shutdown(token);
    writing_->end(error);
  }
  socket_.shutdown(Socket::shutdown_send, error);
}

awaitable<void> Stream::drain(Deadline deadline) {
  std::array<char, 4096> ignored;
  error_code error;
  const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
  while (!error) {
    const asio::cancellation_slot slot = reading_->begin(deadline, state.slot());
    auto token =
        asio::bind_cancellation_slot(slot, asio::redirect_error(asio::use_awaitable, error));
    co_await socket_.async_read_some(asio::buffer(ignored), token);
    reading_->end(error);
    if (deadline.expired()) co_return;
  }
}

void Stream::end(Limit& limit, error_code& error) const {
  const bool is_late = limit.end(error);
  if (is_late && is_open()) error = kDeadlinePassed;
  // An operation that begins after close() reports a bad descriptor.
  if (error == asio::error::bad_descriptor) error = asio::error::operation_aborted;
}

void Stream::close() {
  error_code ignored;
  socket_.close(ignored);
}

void Stream::reset_on_close(bool wanted) {
  const linger discard{.l_onoff = wanted ? 1 : 0, .l_linger = 0};
  if (!socket_.is_open()) return;
  ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &discard, sizeof discard);
}

void Stream::reset() {
  reset_on_close(true);
  close();
}

bool Stream::is_quiet() {
  if (!socket_.is_open()) return false;
  char byte = 0;
  const ssize_t count =
      ::recv(socket_.native_handle(), &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
  if (count >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return false;
  if (!tls_) return true;
  // Bytes that have left the socket may be with OpenSSL. Session tickets are not for the reader.
  SSL* const ssl = tls_->native_handle();
  ::ERR_clear_error();
  const int peeked = ::SSL_peek(ssl, &byte, sizeof byte);
  const bool is_empty = peeked <= 0 && ::SSL_get_error(ssl, peeked) == SSL_ERROR_WANT_READ;
  ::ERR_clear_error();
  return is_empty && ::SSL_has_pending(ssl) == 0;
}

std::string Stream::peer_host() {
  error_code error;
  const auto generic = socket_.remote_endpoint(error);
  asio::ip::tcp::endpoint peer;
  const bool is_ip =
      generic.protocol().family() == AF_INET || generic.protocol().family() == AF_INET6;
  if (error || !is_ip || generic.size() > peer.capacity()) return {};
  std::memcpy(peer.data(), generic.data(), generic.size());
  return peer.address().to_string();
}

std::optional<std::string> Stream::peer_name() {
  return tls_ ? peer_common_name(tls_->native_handle()) : std::nullopt;
}

Error Stream::failure(const std::string& what, const error_code& error) {
  if (error == kDeadlinePassed) return Error(ExitStatus::kTryAgain, what + ": timed out");
  if (tls_) return tls_error(what, error, tls_->native_handle());
  if (error == asio::error::eof) {
    return Error(ExitStatus::kUnavailable, what + ": the connection ended early");
  }
  return Error(ExitStatus::kUnavailable, what, error);
}

}  // namespace fo::net
