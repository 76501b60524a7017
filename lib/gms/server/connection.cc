#include "gms/server/connection.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "gms/protocol/protocol.h"
#include "loop/adopt.h"
#include "loop/pause.h"
#include "os/socket/fd_passing.h"

namespace fo::gms {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kChunk = std::size_t{64} * 1024;
// After this many requests in a row of one client, others are served.
constexpr unsigned kMaxAtOnce = 16;
// Unread answers that a client may have when it requests descriptors, so that it can pipeline a
// little.
constexpr std::size_t kMaxUnread = std::size_t{16} * 1024;
constexpr base::Duration kLookAgain = std::chrono::milliseconds(2);
// A client with unread answers for longer than this is disconnected if memory runs out.
constexpr base::Duration kPatience = std::chrono::seconds(2);

}  // namespace

bool UnreadAnswers::make_room(std::size_t fds) {
  if (has_room(fds)) return true;
  for (auto at = clients_.begin(); at != clients_.end();) {
    Connection& client = **at++;
    const bool is_reading = client.unread_bytes_ == 0 && !client.makes_fds_;
    if (is_reading && client.unread_in_kernel() == 0) remove(client);
  }
  const auto patience_began = std::chrono::steady_clock::now() - kPatience;
  while (!will_have_room(fds) && !clients_.empty() &&
         clients_.front()->unread_since_ < patience_began) {
    Connection& slowest = *clients_.front();
    slowest.fault_ = Connection::Fault::kSlowReader;
    slowest.close();
  }
  return has_room(fds);
}

void UnreadAnswers::add(Connection& client, std::size_t bytes, std::size_t fds) {
  if (client.unread_bytes_ + client.unread_fds_ == 0) {
    client.unread_since_ = std::chrono::steady_clock::now();
    clients_.push_back(&client);
  }
  client.unread_bytes_ += bytes;
  client.unread_fds_ += fds;
  bytes_ += bytes;
  fds_ += fds;
}

void UnreadAnswers::remove_bytes(Connection& client) {
  if (client.unread_bytes_ == 0) return;
  if (!client.socket_.is_open()) closing_bytes_ -= client.unread_bytes_;
  bytes_ -= std::exchange(client.unread_bytes_, 0);
  if (client.unread_fds_ == 0) clients_.remove(&client);
}

void UnreadAnswers::remove(Connection& client) {
  remove_bytes(client);
  fds_ -= std::exchange(client.unread_fds_, 0);
  clients_.remove(&client);
}

void UnreadAnswers::close(Connection& client) {
  closing_bytes_ += client.unread_bytes_;
  fds_ -= std::exchange(client.unread_fds_, 0);
  clients_.remove(&client);
}

Connection::Connection(asio::io_context& io, base::UniqueFd socket, UnreadAnswers& unread)
    : socket_(io),
      alarm_(io.get_executor()),
      chunk_(std::make_unique_for_overwrite<char[]>(kChunk)),
      unread_(unread) {
  loop::adopt(socket_, std::move(socket), "watch a client's socket",
              asio::generic::seq_packet_protocol(AF_UNIX, 0));
}

Connection::~Connection() { unread_.remove(*this); }

void Connection::allow_long_frames() { max_frame_ = kMaxRequestFrame; }

bool Connection::is_buffer_full() const {
  return buffer_.size() - consumed_ >= kPrefixSize + max_frame_;
}

// The control buffer is empty, so the kernel drops descriptors and sets a flag.
asio::awaitable<bool> Connection::fill() {
  if (consumed_ > 0) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  const std::size_t room = std::min(kChunk, kPrefixSize + max_frame_ - buffer_.size());
  boost::system::error_code ec;
  asio::socket_base::message_flags flags = 0;
  const std::size_t got = co_await socket_.async_receive(
      asio::buffer(chunk_.get(), room), flags, asio::redirect_error(asio::use_awaitable, ec));
  if (ec == asio::error::operation_aborted || !socket_.is_open()) co_return false;
  if (ec || got == 0) gone_ = true;
  if ((flags & MSG_CTRUNC) != 0) ++messages_with_fds_;
  buffer_.append(chunk_.get(), got);
  co_return !gone_;
}

void Connection::arm(base::Duration timeout, Fault fault) {
  alarm_.set(base::Deadline::after(timeout), [this, fault] {
    fault_ = fault;
    close();
  });
}

asio::awaitable<std::optional<std::string_view>> Connection::read_frame(
    std::optional<base::Duration> timeout, base::Duration frame_timeout) {
  if (++frames_at_once_ >= kMaxAtOnce) {
    frames_at_once_ = 0;
    co_await asio::post(socket_.get_executor(), asio::use_awaitable);
  }
  // The alarm ends the wait, which then looks like a disconnected client.
  bool timer_runs = timeout.has_value();
  if (timeout) arm(*timeout, Fault::kSilent);
  std::optional<std::string_view> body;
  for (;;) {
    const std::string_view ready = std::string_view(buffer_).substr(consumed_);
    if (ready.size() >= kPrefixSize) {
      const std::size_t size = read_prefix(ready);
      if (size > max_frame_) {
        fault_ = Fault::kFrameTooBig;
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
    if (!timer_runs && buffer_.size() > consumed_) {
      timer_runs = true;
      arm(frame_timeout, Fault::kSilent);
    }
    frames_at_once_ = 0;
    const bool filled = co_await fill();
    if (!filled) break;
  }
  if (timer_runs) alarm_.cancel();
  co_return body;
}

std::size_t Connection::unread_in_kernel() const {
  int bytes = 0;
  // Called only if descriptors are requested; if the kernel cannot tell, nothing counts as unread.
  auto& socket = const_cast<decltype(socket_)&>(socket_);
  if (!socket.is_open() || ::ioctl(socket.native_handle(), SIOCOUTQ, &bytes) != 0) return 0;
  return static_cast<std::size_t>(bytes);
}

asio::awaitable<bool> Connection::make_room(std::size_t fds, base::Duration timeout) {
  const auto deadline = base::Deadline::after(timeout);
  for (;;) {
    const std::size_t in_kernel = fds + unread_fds_ == 0 ? 0 : unread_in_kernel();
    if (in_kernel == 0) unread_.remove(*this);
    if ((fds == 0 || in_kernel <= kMaxUnread) && unread_.make_room(fds)) break;
    if (!is_alive()) co_return false;
    if (deadline.expired()) {
      fault_ = Fault::kSlowReader;
      co_return false;
    }
    // There is no event for a client that reads.
    co_await loop::pause_for(kLookAgain);
  }
  if (fds > 0) {
    makes_fds_ = true;
    unread_.add(*this, 0, fds);
  }
  co_return socket_.is_open();
}

std::size_t Connection::write_at_once(std::string_view frame) {
  makes_fds_ = false;
  if (!socket_.is_open()) return 0;
  const std::ptrdiff_t sent =
      os::send_with_fds(socket_.native_handle(), std::as_bytes(std::span(frame)), {});
  return sent > 0 ? static_cast<std::size_t>(sent) : 0;
}

asio::awaitable<bool> Connection::write_frame(std::string_view frame,
                                              std::vector<base::UniqueFd> fds,
                                              base::Duration timeout) {
  // From here on, unread_bytes_ and the kernel count what is unread.
  makes_fds_ = false;
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
      arm(timeout, Fault::kSlowReader);
      unread_.add(*this, bytes.size(), 0);
    }
    boost::system::error_code ec;
    co_await socket_.async_wait(asio::socket_base::wait_write,
                                asio::redirect_error(asio::use_awaitable, ec));
    if (ec) break;
  }
  if (timer_runs) {
    alarm_.cancel();
    unread_.remove_bytes(*this);
  }
  const bool all_sent = bytes.empty();
  co_return all_sent;
}

asio::awaitable<void> Connection::watch_hangup() {
  watching_ = watch_runs_ = true;
  while (watching_ && !gone_ && socket_.is_open()) {
    if (!is_buffer_full()) {
      const bool filled = co_await fill();
      if (!filled) break;
    } else {
      // On an error the socket stays open; a hang-up of the client is an error, too.
      boost::system::error_code ec;
      co_await socket_.async_wait(asio::socket_base::wait_error,
                                  asio::redirect_error(asio::use_awaitable, ec));
      if (ec) break;
      gone_ = !is_alive();
    }
  }
  watch_runs_ = false;
}

asio::awaitable<void> Connection::stop_watching() {
  watching_ = false;
  if (socket_.is_open()) socket_.cancel();
  // Bytes that it has read may not be in the buffer yet.
  while (watch_runs_) co_await asio::post(socket_.get_executor(), asio::use_awaitable);
}

bool Connection::is_alive() const {
  if (gone_ || !socket_.is_open()) return false;
  pollfd state{const_cast<decltype(socket_)&>(socket_).native_handle(), POLLRDHUP, 0};
  return ::poll(&state, 1, 0) == 0;
}

void Connection::close() {
  if (!socket_.is_open()) return;
  boost::system::error_code ignored;
  socket_.close(ignored);
  unread_.close(*this);
}

}  // namespace fo::gms
