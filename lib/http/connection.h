// The client's end of an HTTP/1.1 connection: one request and its answer at a time, sent and read
// piece by piece as the caller asks for it. What the caller does not read stays with the server,
// apart from one buffer. client.h has whole answers in one call; pool.h keeps connections.
//
// g++ 12 destroys braced temporaries inside a co_await expression twice: give it locals.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "http/message.h"
#include "net/address.h"
#include "net/tls_files.h"

namespace fo::http {

/// A server, and how to reach it.
struct Origin {
  /// A Unix socket; empty: TCP.
  std::string socket_path;
  net::Address address;
  /// Over TLS.
  std::optional<net::TlsFiles> tls;
  /// As net::resolve() takes them.
  std::string name_servers;

  /// What the Host field says.
  [[nodiscard]] std::string host() const;
};

/// That of a URL (net::parse_url); `tls` is for https. Throws Error(kUsage) where https has none.
Origin make_origin(const net::Url& url, const std::optional<net::TlsFiles>& tls);

struct RequestHead {
  std::string method = "GET";
  /// As it goes into the request line.
  std::string target = "/";
  /// Beside Host, Connection, Content-Length, Transfer-Encoding and Trailer, which are written here
  /// and may not be among them.
  Fields headers;
  /// The server is asked to close the connection after its answer.
  bool close = false;
};

/// Whether a request of that method may be sent again where nobody knows what became of it.
bool is_idempotent(std::string_view method);

/// Every call but the queries may throw: kTryAgain at its deadline, kUnavailable where the
/// connection ends, kProtocol for what is no answer; with TLS also kConfig (net::tls_error). When
/// the coroutine is cancelled while it waits here, boost::system::system_error is thrown and the
/// connection is closed.
class Connection {
 public:
  /// Of an answer.
  struct Limits {
    /// Of the head, of the trailers, and of the line that begins a chunk.
    std::uint32_t head_bytes = 64 * 1024;
    /// Headers and trailers.
    std::size_t fields = 256;
  };

  /// How far the last request has got.
  enum class Progress {
    /// No byte of it has left: to send it elsewhere is safe.
    kNothingSent,
    /// The server may have begun with it.
    kSent,
    /// A byte of an answer has come.
    kAnswered
  };

  /// Connects, and shakes hands over TLS. `what` begins each error's message. Throws also what
  /// net::resolve, net::connect, net::connect_unix and net::make_tls_client throw.
  static boost::asio::awaitable<std::unique_ptr<Connection>> open(Origin origin,
                                                                  base::Deadline deadline,
                                                                  std::string what);
  static boost::asio::awaitable<std::unique_ptr<Connection>> open(Origin origin,
                                                                  base::Deadline deadline,
                                                                  std::string what, Limits limits);
  /// Closes it.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// What is done from now on, as messages begin.
  void set_what(std::string what);

  /// Sends a request and its whole body, with Content-Length where there is one or the method has
  /// bodies. A server that refuses a body may answer before it has read all of it: where that ends
  /// the connection, read_head() finds the answer, or says what happened. Throws kUsage for a head
  /// that can't be written, kSoftware where the last answer was not read to its end. A request of
  /// which a part is sent when the deadline passes closes the connection.
  boost::asio::awaitable<void> send(RequestHead head, std::string_view body,
                                    base::Deadline deadline);

  /// The same in pieces: the head; the body, of `length` bytes, or in chunks of any number where
  /// that is nullopt; then send_end(). The answer may be read meanwhile by another coroutine.
  boost::asio::awaitable<void> send_head(RequestHead head, std::optional<std::uint64_t> length,
                                         base::Deadline deadline);
  /// False: the server takes no more, and its answer is to be read. Throws kSoftware beyond the
  /// length.
  boost::asio::awaitable<bool> send_some(std::string_view piece, base::Deadline deadline);
  /// Trailers are for a body in chunks alone. Throws kSoftware for a body that is too short.
  boost::asio::awaitable<void> send_end(Fields trailers, base::Deadline deadline);

  /// Once. Interim answers (1xx) are passed over. After a deadline it may be called again.
  boost::asio::awaitable<ResponseHead> read_head(base::Deadline deadline);

  /// After the head: the next bytes of the body, as many as there are and `space` (not empty)
  /// holds; 0 at its end. After a deadline it may be called again, and nothing is lost.
  boost::asio::awaitable<std::size_t> read_some(std::span<char> space, base::Deadline deadline);

  /// Reads, and throws away, what is left of an answer where that is little. True when the
  /// connection can take another request; else it is closed. Throws nothing but a cancellation.
  boost::asio::awaitable<bool> finish(base::Deadline deadline);

  /// At once. What waits on it ends as if it was cancelled.
  void close();

  /// The length of the answer's body, where its head says it.
  [[nodiscard]] std::optional<std::uint64_t> length() const;
  /// After the end of the answer.
  [[nodiscard]] const Fields& trailers() const;
  /// Request and answer are complete, and another request may follow.
  [[nodiscard]] bool is_reusable() const;
  /// It is reusable, and the server has neither closed it nor said anything since.
  [[nodiscard]] bool is_alive() const;
  /// It has carried another request before the last.
  [[nodiscard]] bool is_reused() const;
  [[nodiscard]] Progress progress() const;
  /// After an error: the request may be sent once more, on another connection. Either nothing of it
  /// was sent; or it is idempotent, and the connection was reused and ended without a byte of an
  /// answer, so that the server had most likely closed it before.
  [[nodiscard]] bool may_retry() const;

 private:
  struct State;
  explicit Connection(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fo::http
