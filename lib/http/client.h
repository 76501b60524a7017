// One HTTP request with a deadline from connect to the last byte, blocking or on a loop: for
// probes, health checks, locks across a network and tests. A new connection each time; no
// redirects. What wants less than a whole answer, or keeps connections, uses connection.h.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/strong.h"
#include "http/message.h"
#include "net/tls_files.h"

namespace fo::http {

struct FetchOptions {
  /// JSON, unless `headers` have another Content-Type.
  std::string body;
  /// Sent beside what Connection::send writes itself, which may not be among them.
  Fields headers;
  /// For https URLs, which need it.
  std::optional<net::TlsFiles> tls;
  /// As resolve() takes them.
  std::string name_servers;
  base::ByteCount response_limit = 16 * base::kMiB;
  /// Gets the body piece by piece as it arrives (Response::body stays empty); returning false ends
  /// the fetch there.
  std::function<bool(std::string_view piece)> on_data;
};

/// Any answer, whatever its status, is a Response. Errors: kUsage (URL, see parse_url, https
/// without `tls`, or a field that no head can have), kUnavailable (no such name, refused, or the
/// connection ended early), kTryAgain (deadline), kProtocol (not HTTP, or longer than the limit);
/// with TLS also kConfig (the server's certificate is not to be trusted, or ours not good enough
/// for it) and those of make_tls_client.
Response fetch(std::string_view method, std::string_view url, const base::Deadline& deadline,
               const FetchOptions& options = {});

/// The same without blocking the loop that it is awaited on. When it is cancelled it ends at once
/// with boost::system::system_error. g++ 12 destroys braced temporaries
/// inside a co_await expression twice: give it locals.
boost::asio::awaitable<Response> async_fetch(std::string method, std::string url,
                                             base::Deadline deadline, FetchOptions options = {});

}  // namespace fo::http
