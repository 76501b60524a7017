// One HTTP request with a deadline from connect to the last byte, blocking or on a loop: for
// probes, health checks, locks across a network and tests. Each request opens a new connection;
// redirects are not followed. connection.h reads answers piece by piece, and pool.h keeps
// connections.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/strong.h"
#include "http/connection.h"
#include "http/message.h"
#include "net/tls_files.h"

namespace fo::http {

struct FetchOptions {
  /// Sent as application/json unless `headers` contains a Content-Type.
  std::string body = {};
  /// Sent in addition to the fields that Connection::send writes, which must not be among them.
  Fields headers = {};
  /// Required for https URLs.
  std::optional<net::TlsFiles> tls = {};
  /// A server list as for net::resolve().
  std::string name_servers = {};
  base::ByteCount response_limit = 16 * base::kMiB;
  /// Called with each piece of the body as it arrives; Response::body then stays empty. Returning
  /// false ends the fetch.
  std::function<bool(std::string_view piece)> on_data = {};
};

/// Returns any answer, whatever its status. Errors: kUsage (an invalid URL, see parse_url; https
/// without `tls`; a field that a head cannot have), kUnavailable (unknown name, refused connection,
/// or the connection ended early), kTryAgain (deadline), kProtocol (not HTTP, or longer than the
/// limit); with TLS also kConfig (the server's certificate is not trusted, or the server does not
/// accept ours) and the errors of make_tls_client.
Response fetch(std::string_view method, std::string_view url, const base::Deadline& deadline,
               const FetchOptions& options = {});

/// The same without blocking the loop. Cancellation ends it at once with
/// boost::system::system_error. g++ 12 destroys braced temporaries in a co_await expression twice:
/// pass locals.
boost::asio::awaitable<Response> async_fetch(std::string method, std::string url,
                                             base::Deadline deadline, FetchOptions options = {});

/// The same for a target at an origin, which replaces `tls` and `name_servers` of the options.
boost::asio::awaitable<Response> async_fetch(std::string method, Origin origin, std::string target,
                                             base::Deadline deadline, FetchOptions options);

}  // namespace fo::http
