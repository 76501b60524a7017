// An HTTP/1.1 server on one io_context, with or without TLS: keep-alive, pipelining, streamed
// answers, and a limit on everything that a client controls. It has no routes: one handler receives
// every request.
//
// All calls are made on the loop's single thread. g++ 12 destroys braced temporaries in a co_await
// expression twice: handlers pass locals.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/strong.h"
#include "base/unique_fd.h"
#include "http/message.h"
#include "net/tls_files.h"

namespace fo::http {

struct ServerLimits {
  /// Limit of the request line and the headers; the server answers larger ones with 431.
  std::uint32_t header_bytes = 16 * 1024;
  /// Limit of a body; the server answers larger ones with 413.
  base::ByteCount body_bytes = 16 * base::kMiB;
  /// Limit of the total size of the bodies of all requests that are being read or with the handler;
  /// the server answers a request beyond it with 503.
  base::ByteCount all_bodies = 4096 * base::kMiB;
  /// Maximum number of open connections. A further one replaces a connection that waits for its
  /// client: the one that has been idle for longest, else one that is sending a request, else one
  /// that does not read its answer. If all are with the handler, further ones are answered with
  /// 503, or not at all where TLS is used, and closed.
  std::size_t connections = 4096;
  /// Timeout from a request's first byte to the end of its headers, and for the TLS handshake; then
  /// the connection is closed.
  base::Duration header_timeout = std::chrono::seconds(10);
  /// Timeout from the end of the headers to the end of the body.
  base::Duration body_timeout = std::chrono::seconds(60);
  /// Timeout for the first byte of a request.
  base::Duration idle_timeout = std::chrono::seconds(75);
  /// Clients of a Unix socket are refused unless they run as our own user or as root.
  bool own_user_only = false;
  /// Timeout for a client to read 64 KiB, while a write or the end of the answer waits for it.
  base::Duration write_timeout = std::chrono::seconds(30);
  /// Bytes of a streamed answer that are kept for a client that does not read them, beside those
  /// that the kernel has accepted. Reply::write() waits only when there are more, and then adds one
  /// piece.
  base::ByteCount kept_bytes = 0;
};

/// Limits for a server with short requests and answers, such as probes and metrics.
ServerLimits limits_for_probes(std::size_t connections);

struct Listener {
  /// The listening, non-blocking socket.
  base::UniqueFd fd;
  std::uint16_t port = 0;
};
/// Opens a listening socket on "HOST:PORT" (parse_address; port 0 selects a free one), for a server
/// in this process or in a child. Throws kUsage, kCannotCreate (address in use) or kNotPermitted.
Listener listen_tcp(const std::string& address);

class Session;

/// A handler's answer: either answer(), or begin() and any number of write().
class Reply {
 public:
  explicit Reply(Session& session) : session_(&session) {}
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  /// Stores the answer, which is sent when the handler returns. A second call replaces the first.
  void answer(Response response) { response_ = std::move(response); }

  /// Sends the status and headers of a streamed answer, which ends when the handler returns. If the
  /// handler throws, the connection is cut so that the client sees an incomplete answer. Like
  /// write(), throws Error(kUnavailable) if the client has disconnected or is too slow.
  boost::asio::awaitable<void> begin(int status, std::string_view content_type);

  /// The same with the handler's headers. Connection and Transfer-Encoding, which the server
  /// writes, and invalid fields are left out. With Content-Length the answer has that length:
  /// write() throws Error(kSoftware) beyond it, and if the answer is shorter the connection is cut.
  boost::asio::awaitable<void> begin(ResponseHead head);

  /// Sends one piece at once, e.g. "data: …\n\n". Returns when the kernel has accepted it, or when
  /// it is kept (ServerLimits::kept_bytes).
  boost::asio::awaitable<void> write(std::string_view piece);

  /// The connection is closed after this answer. A head that is not sent yet announces it.
  void close_after();

  /// Ends the connection at once: the client sees an incomplete answer, without the bytes that are
  /// kept for it, and a reset may discard bytes that it has not read yet. Later writes throw.
  enum class Cut { kClose, kReset };
  void cut(Cut how);

  /// From now on the handler is cancelled when its client disconnects: a pending await throws
  /// boost::system::system_error. A client that shuts down only its sending side looks the same. A
  /// client is no longer watched once it has sent over 64 KiB of further requests before its
  /// answer.
  void cancel_when_client_goes();

  /// The client's IP address; empty for a Unix socket, and once the client has disconnected.
  [[nodiscard]] std::string client_host() const;

  [[nodiscard]] bool begun() const { return begun_; }
  [[nodiscard]] const Response& response() const { return response_; }

 private:
  Session* session_;
  bool begun_ = false;
  Response response_{501, "text/plain", "not implemented\n", {}};
};

/// An exception is logged and, unless the answer has begun, answered with 500. The request and the
/// reply live until the handler returns. Requests of one connection are handled one after the
/// other.
using Handler = std::function<boost::asio::awaitable<void>(const Request&, Reply&)>;

/// An error that the server answers itself, because the handler cannot get the request.
struct EarlyError {
  int status = 0;
  std::string_view message;
  /// The server is busy, and the client may try again after this time.
  std::optional<base::Duration> retry_after = {};
  /// The request as far as it was read. It has headers if its head was valid.
  Request request = {};
};

/// Makes the answer to such an error. It must not throw.
using EarlyAnswer = std::function<Response(const EarlyError&)>;

/// The default one: error_response(), with Retry-After if the server is busy.
Response early_response(const EarlyError& error);

/// Checks the head of a request that has a body before the server reads the body, or asks for it
/// with "100 Continue". Such requests have no limit but those on all clients, so that a client
/// without a right to send them must be refused here. An answer refuses the request: it is sent,
/// and the connection ends. It must not throw.
using HeadCheck = std::function<std::optional<Response>(const Request& head)>;

class Server {
 public:
  Server(boost::asio::any_io_executor executor, Handler handler, const ServerLimits& limits = {},
         EarlyAnswer early_answer = early_response, HeadCheck head_check = {});
  /// Closes everything at once. Running handlers continue with a closed connection while the loop
  /// runs.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Listens on "HOST:PORT" and returns the port. May be called several times. Throws what
  /// listen_tcp throws.
  std::uint16_t listen(const std::string& address);

  /// The same with TLS. The files (net::make_tls_server) are read again after they change; while
  /// they are invalid, clients are refused. Also throws what make_tls_server throws.
  std::uint16_t listen(const std::string& address, const net::TlsFiles& tls);

  /// Adopts a listening TCP or Unix socket; the caller keeps the responsibility for the file of a
  /// Unix socket. Throws Error(kOsError).
  void listen(base::UniqueFd listener);
  void listen(base::UniqueFd listener, const net::TlsFiles& tls);

  /// Sets the limits of requests that begin from now on, and of later writes. Open connections
  /// stay, also if there are more of them than `limits` has.
  void set_limits(const ServerLimits& limits);

  /// The number of open connections.
  [[nodiscard]] std::size_t connections() const;
  /// Whether a connection is open that is not idle.
  [[nodiscard]] bool is_busy() const;

  /// From now on, each connection ends with its next answer, which announces that.
  void close_after_answers();

  /// Stops accepting, waits for requests in flight until `deadline`, and then cuts the rest. Does
  /// as close_after_answers(), and closes connections that are idle at `idle_until`. True if no
  /// connection was cut. Call once.
  boost::asio::awaitable<bool> stop(
      base::Deadline deadline,
      base::Deadline idle_until = base::Deadline::after(base::Duration::zero()));

 private:
  struct State;
  std::shared_ptr<State> state_;
  friend class Session;
};

}  // namespace fo::http
