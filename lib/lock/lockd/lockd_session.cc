#include "lock/lockd/lockd_session.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <chrono>
#include <span>
#include <system_error>
#include <utility>
#include <variant>

#include "base/deadline.h"
#include "base/error.h"
#include "loop/adopt.h"
#include "os/socket/fd_passing.h"

namespace fo::lock {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using asio::posix::stream_descriptor;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;

// The timeout for a TCP client to read its answers.
constexpr base::Duration kSendLimit = std::chrono::seconds(5);
constexpr base::Duration kLastWordLimit = std::chrono::seconds(1);
// The timeout of the TLS handshake.
constexpr base::Duration kHandshakeLimit = std::chrono::seconds(5);
// A TCP client with more unread answers is disconnected.
constexpr std::size_t kMaxQueuedBytes = kMaxAnswerBytes;

stream_descriptor watched(const asio::any_io_executor& executor, UniqueFd fd) {
  stream_descriptor descriptor(executor);
  loop::adopt(descriptor, std::move(fd), "watch a descriptor");
  return descriptor;
}

// Returns when there is data or the end of the stream; false if `descriptor` was closed.
awaitable<bool> readable(stream_descriptor& descriptor) {
  boost::system::error_code error;
  co_await descriptor.async_wait(stream_descriptor::wait_read,
                                 asio::redirect_error(asio::use_awaitable, error));
  if (error && descriptor.is_open()) {
    throw Error(ExitStatus::kOsError, "wait for a descriptor", std::error_code(error));
  }
  co_return descriptor.is_open();
}

// Pending waits return.
void close(stream_descriptor& descriptor) {
  boost::system::error_code ignored;
  descriptor.close(ignored);
}

tcp::socket watched_tcp(const asio::any_io_executor& executor, UniqueFd fd) {
  const bool is_v6 = loop::family_of(fd.get(), "use a socket") == AF_INET6;
  tcp::socket socket(executor);
  loop::adopt(socket, std::move(fd), "watch a socket", is_v6 ? tcp::v6() : tcp::v4());
  return socket;
}

// Checks the pipe and makes it non-blocking. If we could write to it ourselves, it would never end.
UniqueFd check_lifeline(UniqueFd fd) {
  struct stat info {};
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fstat(fd.get(), &info) != 0 || !S_ISFIFO(info.st_mode) ||
      (flags & O_ACCMODE) != O_RDONLY || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    throw Error(ExitStatus::kProtocol, "the descriptor is not the read end of a pipe");
  }
  return fd;
}

}  // namespace

LockdSession::LockdSession(const asio::any_io_executor& executor, UniqueFd connected)
    : socket_(watched(executor, std::move(connected))), silence_(executor) {}

LockdSession::LockdSession(const asio::any_io_executor& executor, UniqueFd connected,
                           net::ServerTls& tls, Start start)
    : start_(std::move(start)),
      socket_(executor),
      stream_(std::in_place, watched_tcp(executor, std::move(connected)), tls.context(),
              kMaxRequestBytes),
      silence_(executor) {
  name = stream_->peer();
  host = name.substr(0, name.rfind(':'));
}

void LockdSession::close() {
  descriptors_.clear();
  stream_ ? stream_->close() : lock::close(socket_);
}

void LockdSession::drop() {
  dropped_ = true;
  close();
}

awaitable<void> LockdSession::handshake() {
  if (!stream_) co_return;
  std::string to_plain = encode_answer(
      RefusedAnswer{ExitStatus::kConfig, "this port needs TLS: set ca, cert and key"});
  co_await stream_->handshake(Deadline::after(kHandshakeLimit), std::move(to_plain));
  name = stream_->peer();
}

awaitable<std::optional<std::string>> LockdSession::next_line() {
  if (stream_) {
    net::LineStream::Input input = co_await stream_->read_line(Deadline::never());
    // A line that was read before this server closed the connection is ignored.
    if (input.kind != net::LineStream::Input::Kind::kLine || !is_open()) co_return std::nullopt;
    co_return std::move(input.line);
  }
  for (;;) {
    std::optional<std::string> line = lines_.take_line();
    if (line) co_return line;
    if (talk == Talk::kAcquire && (!lines_.empty() || has_descriptor())) {
      throw Error(ExitStatus::kProtocol, "data after a request for the lock");
    }
    const bool open = co_await readable(socket_);
    if (!open || !receive()) co_return std::nullopt;
  }
}

bool LockdSession::receive() {
  std::array<std::byte, kMaxRequestBytes> chunk;
  const std::ptrdiff_t got = os::receive_with_fds(socket_.native_handle(), chunk, descriptors_);
  if (got == -EAGAIN) return true;
  if (got == -EMSGSIZE || descriptors_.size() > 1) {
    throw Error(ExitStatus::kProtocol, "more than one descriptor in a request");
  }
  if (got <= 0) return false;
  lines_.append({reinterpret_cast<const char*>(chunk.data()), static_cast<std::size_t>(got)});
  return true;
}

void LockdSession::send(const LockdAnswer& answer) {
  if (!is_open() || is_closing_) return;
  std::string line = encode_answer(answer);
  if (stream_) return queue(std::move(line), answer);
  const auto bytes = std::as_bytes(std::span(line));
  const std::ptrdiff_t sent = os::send_with_fds(socket_.native_handle(), bytes, {});
  const bool is_last = std::holds_alternative<RefusedAnswer>(answer);
  if (is_last || sent != static_cast<std::ptrdiff_t>(line.size())) close();
}

void LockdSession::queue(std::string line, const LockdAnswer& answer) {
  if (std::holds_alternative<GrantedAnswer>(answer)) has_grant = true;
  if (std::holds_alternative<RefusedAnswer>(answer)) is_closing_ = true;
  if (queued_bytes_ > kMaxQueuedBytes) return close();
  queued_bytes_ += line.size();
  queue_.push_back(std::move(line));
  send_queue();
}

// Answers that were queued during a write are sent with the next one.
void LockdSession::send_queue() {
  if (std::exchange(is_sending_, true)) return;
  start_(write_queue(shared_from_this()));
}

awaitable<void> LockdSession::write_queue(Pointer self) {
  try {
    while (!self->queue_.empty()) {
      std::string line = std::move(self->queue_.front());
      self->queue_.pop_front();
      self->queued_bytes_ -= line.size();
      co_await self->stream_->write(std::move(line), Deadline::after(kSendLimit));
    }
    if (self->on_end_) co_await self->stream_->finish(Deadline::after(kLastWordLimit));
  } catch (const Error&) {  // it is closed
  }
  self->is_sending_ = false;
  if (self->on_end_) self->on_end_();
}

void LockdSession::finish(std::function<void()> on_end) {
  on_end_ = std::move(on_end);
  send_queue();
}

void LockdSession::watch_silence(base::Duration limit, OnSilence on_silence) {
  const Deadline deadline = Deadline::after(limit);
  silence_.set(deadline, [this, deadline, on_silence = std::move(on_silence)] {
    on_silence(shared_from_this(), Deadline::Clock::now() - *deadline.at());
  });
}

void LockdSession::take_lifeline() {
  if (descriptors_.empty()) return;
  UniqueFd fd = check_lifeline(std::move(descriptors_.front()));
  lifeline_.emplace(watched(socket_.get_executor(), std::move(fd)));
  descriptors_.clear();
}

void LockdSession::close_lifeline() {
  if (lifeline_) lock::close(*lifeline_);
}

// Bytes written to a lifeline are ignored; only its end matters.
awaitable<bool> LockdSession::lifeline_ended() {
  for (;;) {
    std::array<char, 16384> ignored;
    const ssize_t got = ::read(lifeline_->native_handle(), ignored.data(), ignored.size());
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
    const bool open = co_await readable(*lifeline_);
    if (!open) co_return false;
  }
  close_lifeline();
  co_return true;
}

bool LockdSession::is_closed_by_peer() {
  char next = 0;
  return socket_.is_open() &&
         ::recv(socket_.native_handle(), &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

bool LockdSession::is_gone() {
  if (!is_closed_by_peer()) return false;
  if (!lifeline_) return true;
  pollfd lifeline{lifeline_->native_handle(), POLLIN, 0};
  return ::poll(&lifeline, 1, 0) > 0 && (lifeline.revents & POLLHUP) != 0;
}

}  // namespace fo::lock
