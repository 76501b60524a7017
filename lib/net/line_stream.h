// A TCP connection on which lines come and go, in the clear or over TLS: between gms-lockd and its
// clients on other machines. It knows no message. One reader and one writer at a time; every wait
// ends at a deadline, and when the coroutine that waits is cancelled.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "net/line_buffer.h"
#include "net/tls_files.h"

namespace fo::net {

class LineStream {
 public:
  enum class Side { kClient, kServer };

  /// Over TLS where there is a context; then handshake() comes first. `most_bytes` of a line that
  /// is heard, the newline included.
  LineStream(boost::asio::ip::tcp::socket connected, std::optional<boost::asio::ssl::context> tls,
             std::size_t most_bytes);

  /// Connected to `server` (net::parse_server) as net::connect does it; over TLS with a ca in
  /// `files`. Throws kUsage for one that has an address of another machine, in the clear,
  /// kUnavailable, kTryAgain at the deadline, and what handshake() and http::make_tls_client throw.
  static boost::asio::awaitable<std::unique_ptr<LineStream>> connect(std::string server,
                                                                     TlsFiles files,
                                                                     std::size_t most_bytes,
                                                                     base::Deadline deadline);

  /// Nothing where there is no TLS. A client that speaks in the clear is told `to_plain`, in the
  /// clear. Throws what net::tls_error() makes of its failure: kConfig where a certificate is not
  /// accepted, by either side, kProtocol, kUnavailable; and kTryAgain.
  boost::asio::awaitable<void> handshake(Side side, base::Deadline deadline,
                                         std::string to_plain = {});

  struct Heard {
    enum class Kind { kLine, kNothingYet, kEnd };
    Kind kind = Kind::kEnd;
    /// Without its newline.
    std::string line;
  };
  /// The next line. kNothingYet at the deadline: it may be called again. Throws kProtocol for a
  /// line that is too long, and what handshake() throws: only now does a client learn that its
  /// certificate was refused.
  boost::asio::awaitable<Heard> hear(base::Deadline deadline);

  /// Throws kUnavailable or kTryAgain, and then the connection is closed.
  boost::asio::awaitable<void> say(std::string bytes, base::Deadline deadline);

  /// Closes when the peer does, or at the deadline, so that it gets to read what was said last.
  /// Nobody hears meanwhile.
  boost::asio::awaitable<void> finish(base::Deadline deadline);

  /// At once: who waits above hears the end.
  void close();
  [[nodiscard]] bool is_open() const { return socket_.is_open(); }

  /// "127.0.0.1:4711", with what the certificate calls it: "10.0.0.7:4711 'engine-0'".
  [[nodiscard]] const std::string& peer() const { return peer_; }

 private:
  // Says that no more comes, and takes what comes until the peer says the same.
  boost::asio::awaitable<void> drain(base::Deadline deadline);

  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::context> context_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  std::string peer_;
  LineBuffer lines_;
};

}  // namespace fo::net
