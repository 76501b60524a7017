// One HTTP request with a deadline from connect to the last byte, blocking or on a loop: for
// probes, health checks and tests. A new connection each time; no TLS, no redirects, no name
// look-up.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/strong.h"
#include "http/message.h"

namespace fo::http {

struct FetchOptions {
  std::string body;
  /// Sent with a body.
  std::string content_type = "application/json";
  /// Sent as they are, beside Host, Content-Type, Content-Length and Connection.
  Fields headers;
  base::ByteCount response_limit = 16 * base::kMiB;
  /// Gets the body piece by piece as it arrives (Response::body stays empty); returning false ends
  /// the fetch there.
  std::function<bool(std::string_view piece)> on_data;
};

/// Any answer, whatever its status, is a Response. Errors: kUsage (URL, see parse_url),
/// kUnavailable (refused, or the connection ended early), kTryAgain (deadline), kProtocol (not
/// HTTP, or longer than the limit).
Response fetch(std::string_view method, std::string_view url, const base::Deadline& deadline,
               const FetchOptions& options = {});

/// The same without blocking the loop that it is awaited on. g++ 12 destroys braced temporaries
/// inside a co_await expression twice: give it locals.
boost::asio::awaitable<Response> async_fetch(std::string method, std::string url,
                                             base::Deadline deadline, FetchOptions options = {});

}  // namespace fo::http
