// A connected stream socket on a loop, TCP or Unix, with or without TLS; each wait has a deadline.
// One reader and one writer at a time, which may be two coroutines; both must have ended before the
// stream is destroyed, unless the loop is destroyed with them. A timer may outlast its operation,
// so the loop may have work for as long as the stream exists.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/error.h"

namespace fo::net {

class Stream {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  enum class Side { kClient, kServer };

  /// With a context, TLS is used and handshake() must be called first.
  explicit Stream(Socket connected, std::optional<boost::asio::ssl::context> tls = std::nullopt);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // In the functions below, `error` is kDeadlinePassed if the deadline has passed, and
  // asio::error::operation_aborted if the coroutine is cancelled or close() was called.

  /// Performs the TLS handshake, for a client with the server `host`. Does nothing without TLS.
  /// After an error, shut_down() and drain() let the peer read the alert. Throws what expect_host()
  /// throws.
  boost::asio::awaitable<void> handshake(Side side, std::string host, base::Deadline deadline,
                                         boost::system::error_code& error);

  /// Reads at least one byte, or sets an error: asio::error::eof if the peer has ended the stream.
  /// Bytes that have arrived are read even after the deadline. A passed deadline and a cancellation
  /// lose no bytes: the next call continues.
  boost::asio::awaitable<std::size_t> read_some(boost::asio::mutable_buffer space,
                                                base::Deadline deadline,
                                                boost::system::error_code& error);

  /// The same into the space that `prepare` returns. Without TLS, it is called once bytes have
  /// arrived: a stream that waits needs no space.
  using Prepare = std::function<boost::asio::mutable_buffer()>;
  boost::asio::awaitable<std::size_t> read_some(const Prepare& prepare, base::Deadline deadline,
                                                boost::system::error_code& error);

  /// Writes all of `bytes` unless there is an error; returns how many bytes the kernel, or TLS, has
  /// accepted. If the deadline passes, or the coroutine is cancelled, the socket is closed.
  boost::asio::awaitable<std::size_t> write(boost::asio::const_buffer bytes,
                                            base::Deadline deadline,
                                            boost::system::error_code& error);

  /// Writes as many bytes as the socket's buffer accepts at once, and returns their number. Writes
  /// nothing with TLS, or after several such writes: then write() must follow, which yields to the
  /// loop's other coroutines. Does nothing if `error` is set. Must not be called during write().
  std::size_t write_directly(boost::asio::const_buffer bytes, boost::system::error_code& error);

  /// Writes as much of `text` as the socket's buffer accepts, without TLS: for a client that does
  /// not use it, after handshake() has failed.
  void write_plain(std::string_view text);

  /// Ends a pending read_some() as if its deadline had passed.
  void interrupt_read();

  /// Ends the sending direction. With TLS, the peer's bytes cannot be read after this.
  boost::asio::awaitable<void> shut_down(base::Deadline deadline);

  /// After shut_down(): reads and discards bytes until the end or the deadline. Closing with unread
  /// bytes would send a reset, which discards what the peer has not read yet.
  boost::asio::awaitable<void> drain(base::Deadline deadline);

  void close();
  /// Closes the socket so that the peer of a TCP connection sees a reset. Bytes that have not been
  /// sent are discarded.
  void reset();
  /// Whether each close(), and the end of this process, does the same as reset().
  void reset_on_close(bool wanted);
  [[nodiscard]] bool is_open() const { return socket_.is_open(); }
  /// True if the stream is open and nothing can be read, not even the end.
  [[nodiscard]] bool is_quiet();

  /// The peer's IP address; empty for a Unix socket, and once the peer has disconnected.
  [[nodiscard]] std::string peer_host();

  /// The common name in the peer's certificate, if there is one, after handshake().
  [[nodiscard]] std::optional<std::string> peer_name();

  /// The Error for an `error` of these functions: "`what`: reason". Its status is kTryAgain for a
  /// deadline; otherwise that of tls_error(), or kUnavailable without TLS.
  [[nodiscard]] base::Error failure(const std::string& what,
                                    const boost::system::error_code& error);

  /// asio's asynchronous operations never report this error: they wait, and repeat the call that
  /// returned it.
  static constexpr boost::asio::error::basic_errors kDeadlinePassed = boost::asio::error::try_again;

 private:
  class Limit;

  // Reads bytes that have arrived, without the loop and without TLS; 0 if there are none, or on an
  // error.
  std::size_t read_directly(boost::asio::mutable_buffer space, boost::system::error_code& error);
  // Ends the operation of `limit`, and changes `error` to the one that the caller gets.
  void end(Limit& limit, boost::system::error_code& error) const;

  Socket socket_;
  std::optional<boost::asio::ssl::context> context_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
  unsigned direct_writes_ = 0;
  // Shared with the timers, which may expire while the stream is being destroyed.
  std::shared_ptr<Limit> reading_;
  std::shared_ptr<Limit> writing_;
};

}  // namespace fo::net
