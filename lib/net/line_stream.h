// A TCP connection that carries lines, with or without TLS: between gms-lockd and its clients on
// other machines. It is independent of the messages. One reader and one writer at a time; every
// wait ends at a deadline, and when the waiting coroutine is cancelled.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "net/line_buffer.h"
#include "net/stream.h"
#include "net/tls_files.h"

namespace fo::net {

class LineStream {
 public:
  /// Takes a connection that a server accepted. With a context, TLS is used and handshake() must be
  /// called first. `max_bytes` limits a received line, including its newline. Throws Error if the
  /// socket's options cannot be set.
  LineStream(boost::asio::ip::tcp::socket connected, std::optional<boost::asio::ssl::context> tls,
             std::size_t max_bytes);

  /// Connects to `server` (net::parse_server) with net::connect; with TLS if `files` has a ca.
  /// Throws kUsage for an address of another machine without TLS, kUnavailable, kTryAgain at the
  /// deadline, and what handshake() and net::make_tls_client throw.
  static boost::asio::awaitable<std::unique_ptr<LineStream>> connect(std::string server,
                                                                     TlsFiles files,
                                                                     std::size_t max_bytes,
                                                                     base::Deadline deadline);

  /// The server's side; does nothing without TLS. A client that does not use TLS is sent
  /// `to_plain`, without TLS. Throws what net::tls_error() returns: kConfig if either end does not
  /// accept the other's certificate, kProtocol, kUnavailable; and kTryAgain at the deadline.
  boost::asio::awaitable<void> handshake(base::Deadline deadline, std::string to_plain);

  struct Input {
    enum class Kind { kLine, kNothingYet, kEnd };
    Kind kind = Kind::kEnd;
    /// The line without its newline.
    std::string line;
  };
  /// Reads the next line. kNothingYet at the deadline, after which it may be called again; kEnd if
  /// the connection has ended. Throws kProtocol for a line that is too long, and what handshake()
  /// throws, because a client learns only from this read that its certificate was refused.
  boost::asio::awaitable<Input> read_line(base::Deadline deadline);

  /// Writes `bytes`. Throws kUnavailable or kTryAgain, and then the connection is closed.
  boost::asio::awaitable<void> write(std::string bytes, base::Deadline deadline);

  /// Stops sending and closes when the peer has closed, or at the deadline, so that the peer can
  /// read the last bytes. read_line() must not run meanwhile.
  boost::asio::awaitable<void> finish(base::Deadline deadline);

  /// Closes at once; a pending read_line() returns the end.
  void close();
  [[nodiscard]] bool is_open() const { return stream_.is_open(); }

  /// The peer's address, with the name in its certificate: "10.0.0.7:4711 'engine-0'".
  [[nodiscard]] const std::string& peer() const { return peer_; }

 private:
  boost::asio::awaitable<boost::system::error_code> begin_tls(Stream::Side side, std::string host,
                                                              base::Deadline deadline);
  // Stops sending, and discards received bytes until the peer stops sending, too.
  boost::asio::awaitable<void> drain(base::Deadline deadline);

  std::string peer_;
  Stream stream_;
  LineBuffer lines_;
};

}  // namespace fo::net
