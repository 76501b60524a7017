// The client's end of an HTTP/1.1 connection: one request and its answer at a time, sent and read
// piece by piece on demand. Answer bytes that the caller does not read stay with the server, apart
// from one buffer. client.h returns whole answers in one call; pool.h keeps connections.
//
// g++ 12 destroys braced temporaries in a co_await expression twice: pass locals.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "http/message.h"
#include "http/message_reader.h"
#include "net/address.h"
#include "net/networks.h"
#include "net/tls_files.h"

namespace fo::http {

/// A server's address and how to connect to it.
struct Origin {
  /// Path of a Unix socket; empty for TCP.
  std::string socket_path;
  net::Address address;
  /// Set for TLS.
  std::optional<net::TlsFiles> tls;
  /// A server list as for net::resolve().
  std::string name_servers;
  /// No connection is made to an address outside of these networks; null: any address.
  std::shared_ptr<const net::Networks> networks;

  /// The value of the Host field.
  [[nodiscard]] std::string host() const;
};

/// The origin of a URL (net::parse_url); `tls` is used for https. Throws Error(kUsage) for https
/// without it.
Origin make_origin(const net::Url& url, const std::optional<net::TlsFiles>& tls);

struct RequestHead {
  std::string method = "GET";
  /// The request target, as in the request line.
  std::string target = "/";
  /// Sent in addition to Host, Connection, Content-Length, Transfer-Encoding and Trailer, which
  /// Connection writes and which must not be among them.
  Fields headers;
  /// Ask the server to close the connection after its answer.
  bool close = false;
};

/// Every call except the queries may throw kTryAgain at its deadline, kUnavailable if the
/// connection ends, kProtocol for an invalid answer, and with TLS also kConfig (net::tls_error). If
/// the coroutine is cancelled during such a call, boost::system::system_error is thrown and the
/// connection is closed.
class Connection {
 public:
  /// Limits of an answer.
  using Limits = ResponseReader::Limits;

  /// The progress of the last request.
  enum class Progress {
    /// No byte of the request was sent; it can safely be sent to another server.
    kNothingSent,
    /// The server may have begun to process the request.
    kSent,
    /// At least one byte of an answer has arrived.
    kAnswered
  };

  /// Connects, and performs the TLS handshake. `what` begins every error message. Also throws
  /// kUnavailable if no address of the server is in the origin's networks, and what net::resolve,
  /// net::connect, net::connect_unix and net::make_tls_client throw.
  static boost::asio::awaitable<std::unique_ptr<Connection>> open(Origin origin,
                                                                  base::Deadline deadline,
                                                                  std::string what);
  static boost::asio::awaitable<std::unique_ptr<Connection>> open(Origin origin,
                                                                  base::Deadline deadline,
                                                                  std::string what, Limits limits);
  /// Closes the connection.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Sets the beginning of later error messages.
  void set_what(std::string what);

  /// Sends a request and its whole body, with Content-Length if there is a body or the method has
  /// bodies. A server that refuses a body may answer before it has read all of it: if that ends the
  /// connection, read_head() returns the answer or throws the error. Throws kUsage for an invalid
  /// head, kSoftware if the last answer was not read to its end. If the deadline passes after part
  /// of a request was sent, the connection is closed.
  boost::asio::awaitable<void> send(RequestHead head, std::string_view body,
                                    base::Deadline deadline);

  /// Reads the head of the answer. Call it once per request, and again after a deadline. Skips
  /// interim answers (1xx).
  boost::asio::awaitable<ResponseHead> read_head(base::Deadline deadline);

  /// After the head: reads the next available bytes of the body into `space` (not empty); returns
  /// their number, 0 at the end. It may be called again after a deadline; no bytes are lost.
  boost::asio::awaitable<std::size_t> read_some(std::span<char> space, base::Deadline deadline);

  /// The same without space of the caller's: passes the bytes to `take`, unless there are none.
  using Take = std::function<void(std::string_view bytes)>;
  boost::asio::awaitable<std::size_t> read_some(const Take& take, base::Deadline deadline);

  /// Reads and discards the rest of the answer if it is small. True if the connection can send
  /// another request; otherwise it is closed. Throws only on cancellation.
  boost::asio::awaitable<bool> finish(base::Deadline deadline);

  /// Closes the connection at once. Pending calls end as if cancelled.
  void close();

  /// True if request and answer are complete and another request may follow.
  [[nodiscard]] bool is_reusable() const;
  /// True if the connection is reusable and the server has neither closed it nor sent anything
  /// since.
  [[nodiscard]] bool is_alive() const;
  /// True if an earlier request used the connection.
  [[nodiscard]] bool is_reused() const;
  [[nodiscard]] Progress progress() const;

 private:
  struct State;
  explicit Connection(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fo::http
