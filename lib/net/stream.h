// A connected stream socket on a loop, TCP or Unix, in the clear or over TLS: bytes in and out,
// each wait with its deadline. One reader and one writer at a time, which may be two coroutines;
// they have ended before this is destroyed, unless the loop is destroyed with them.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/error.h"

namespace fo::net {

class Stream {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  enum class Side { kClient, kServer };

  /// Over TLS where there is a context; then handshake() comes first.
  explicit Stream(Socket connected, std::optional<boost::asio::ssl::context> tls = std::nullopt);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // In what follows `error` is kDeadlinePassed when the deadline has passed. When the coroutine is
  // cancelled, or close() was called, boost::system::system_error is thrown, and the socket is
  // closed.

  /// Names `host` to the server, for which it is not empty. Nothing without TLS.
  boost::asio::awaitable<void> handshake(Side side, std::string host, base::Deadline deadline,
                                         boost::system::error_code& error);

  /// At least one byte, or an error: asio::error::eof where the peer has said that it is the end.
  /// Bytes that have come are taken even after the deadline, and when it passes nothing is lost:
  /// the next call goes on.
  boost::asio::awaitable<std::size_t> read_some(boost::asio::mutable_buffer space,
                                                base::Deadline deadline,
                                                boost::system::error_code& error);

  /// All of `bytes` unless there is an error; returns how many of them the kernel, or TLS, has
  /// taken. When the deadline passes the socket is closed.
  boost::asio::awaitable<std::size_t> write(boost::asio::const_buffer bytes,
                                            base::Deadline deadline,
                                            boost::system::error_code& error);

  /// A read_some() that waits ends as if its deadline had passed.
  void interrupt_read();

  /// Says to the peer that nothing more comes. Its bytes can't be read any more over TLS.
  boost::asio::awaitable<void> shut_down(base::Deadline deadline);

  /// After shut_down(): reads, and throws away, whatever comes until the end or the deadline. To
  /// close with unread bytes would reset the connection under what the peer has not read yet.
  boost::asio::awaitable<void> drain(base::Deadline deadline);

  void close();
  [[nodiscard]] bool is_open() const { return socket_.is_open(); }
  /// It is open, and there is nothing to read, not even the end.
  [[nodiscard]] bool is_quiet();

  /// What such an `error` means: "`what`: reason", as kTryAgain for a deadline, else as tls_error()
  /// has it, or kUnavailable.
  [[nodiscard]] base::Error failure(const std::string& what,
                                    const boost::system::error_code& error);

  /// No error of a system call that a loop makes.
  static constexpr boost::asio::error::basic_errors kDeadlinePassed = boost::asio::error::try_again;

 private:
  class Limit;

  Socket socket_;
  std::optional<boost::asio::ssl::context> context_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
  // Those under way may be looked at by a timer that rings as this goes.
  std::shared_ptr<Limit> reading_;
  std::shared_ptr<Limit> writing_;
};

}  // namespace fo::net
