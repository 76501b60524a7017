// An HTTP/1.1 server on one io_context, in the clear or over TLS: keep-alive, pipelining, streaming
// answers, and a limit on everything that a client controls. Not a router: one handler sees every
// request.
//
// All calls are made on the loop's one thread. g++ 12 destroys braced temporaries inside a
// co_await expression twice: handlers put arguments into locals first.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/strong.h"
#include "base/unique_fd.h"
#include "http/message.h"
#include "net/tls_files.h"

namespace fo::http {

struct ServerLimits {
  /// Request line and headers; more is answered with 431.
  std::uint32_t header_bytes = 16 * 1024;
  /// More is answered with 413.
  base::ByteCount body_bytes = 16 * base::kMiB;
  /// At a time. A further one takes the place of one that waits for its client: the one that has
  /// been idle for longest, else that is in the middle of a request, else that does not take its
  /// answer. While the handler has all of them, further ones are answered with 503 and closed.
  std::size_t connections = 4096;
  /// From a request's first byte to the end of its headers, and for the handshake of TLS; then the
  /// connection is closed.
  base::Duration header_timeout = std::chrono::seconds(10);
  /// From there to the end of its body.
  base::Duration body_timeout = std::chrono::seconds(60);
  /// Without the first byte of a request.
  base::Duration idle_timeout = std::chrono::seconds(75);
  /// For a client to take what one write gives it.
  base::Duration write_timeout = std::chrono::seconds(30);
};

/// Limits of a server whose requests and answers are short, such as probes and metrics.
ServerLimits limits_for_probes(std::size_t connections);

struct Listener {
  /// Non-blocking.
  base::UniqueFd fd;
  std::uint16_t port = 0;
};
/// A socket that listens on "HOST:PORT" (parse_address; port 0: any), for a server in this process
/// or in a child. Throws kUsage, kCannotCreate (address in use) or kNotPermitted.
Listener listen_tcp(const std::string& address);

class Session;

/// What a handler answers with: either answer(), or begin() and any number of write().
class Reply {
 public:
  explicit Reply(Session& session) : session_(&session) {}
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  /// Keeps the answer, which is sent when the handler returns; a second call replaces the first.
  void answer(Response response) { response_ = std::move(response); }

  /// Sends status and headers of a streamed answer, which ends when the handler returns. When it
  /// throws instead, the connection is cut so that the client sees an incomplete answer.
  /// Throws Error(kUnavailable) when the client is gone or too slow, like write().
  boost::asio::awaitable<void> begin(int status, std::string_view content_type);

  /// The same with headers of the handler's choice. Connection and Transfer-Encoding, which the
  /// server writes itself, and fields that are not valid are left out. With Content-Length the
  /// answer is that long: write() throws Error(kSoftware) beyond, and where it is shorter the
  /// connection is cut.
  boost::asio::awaitable<void> begin(ResponseHead head);

  /// Sends one piece at once, e.g. "data: …\n\n". Returns when the kernel has taken it.
  boost::asio::awaitable<void> write(std::string_view piece);

  /// Sent at the end of a streamed answer without Content-Length, but to clients of HTTP/1.0.
  void add_trailer(std::string name, std::string value);

  /// From now on the handler is cancelled when its client has gone: what it awaits throws
  /// boost::system::system_error. A client that has only said that it sends nothing more looks the
  /// same. One that sends over 64 KiB of further requests before it has its answer is not watched.
  void cancel_when_client_goes();

  [[nodiscard]] bool begun() const { return begun_; }
  [[nodiscard]] const Response& response() const { return response_; }

 private:
  Session* session_;
  bool begun_ = false;
  Response response_{501, "text/plain", "not implemented\n", {}};
};

/// Whatever it throws becomes a log line and, unless the answer has begun, a 500. The request and
/// the reply live until it returns. Requests of one connection are handled one after the other.
using Handler = std::function<boost::asio::awaitable<void>(const Request&, Reply&)>;

class Server {
 public:
  Server(boost::asio::any_io_executor executor, Handler handler, const ServerLimits& limits = {});
  /// Closes everything at once. Handlers that still run go on with a dead connection, while the
  /// loop runs.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Listens on "HOST:PORT" and returns the port. May be called more than once. Throws what
  /// listen_tcp throws.
  std::uint16_t listen(const std::string& address);

  /// The same over TLS. The files (net::make_tls_server) are read again when they have changed;
  /// where they can't be used then, clients are refused. Throws also what make_tls_server throws.
  std::uint16_t listen(const std::string& address, const net::TlsFiles& tls);

  /// Takes over a TCP or Unix socket that listens already; the name of a Unix one, if it has one,
  /// stays the caller's. Throws Error(kOsError).
  void listen(base::UniqueFd listener);
  void listen(base::UniqueFd listener, const net::TlsFiles& tls);

  /// Connections open now.
  [[nodiscard]] std::size_t connections() const;

  /// Stops accepting, closes idle connections, waits for requests in flight until `deadline`, and
  /// cuts what is left then. True when nothing had to be cut. Once only.
  boost::asio::awaitable<bool> stop(base::Deadline deadline);

 private:
  struct State;
  std::shared_ptr<State> state_;
  friend class Session;
};

}  // namespace fo::http
