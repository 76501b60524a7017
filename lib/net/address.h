// Addresses of HTTP servers: "HOST:PORT" and URLs. Names are not resolved here (see resolve.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fo::net {

struct Address {
  /// A numeric address (IPv6 without brackets), or the name of a server.
  std::string host;
  std::uint16_t port = 0;
};

/// Parses "127.0.0.1:8000", "[::1]:0" or "localhost:8000" (127.0.0.1); other names are not allowed.
/// Throws Error(kUsage).
Address parse_address(std::string_view text);

/// Parses the "HOST:PORT" of a server to connect to, with HOST as in parse_url. Throws
/// Error(kUsage).
Address parse_server(std::string_view text);

/// Formats "HOST:PORT", with an IPv6 address in brackets.
std::string to_string(const Address& address);

struct Url {
  /// Path of the Unix socket; empty for TCP.
  std::string socket_path;
  bool is_tls = false;
  Address address;
  /// Path and query as in the request line; at least "/".
  std::string target;
};

/// Parses "http[s]://HOST[:PORT][/PATH]" or "unix:SOCKET[:/PATH]" (SOCKET without a colon). HOST is
/// a numeric address or a name: labels of letters, digits, '-' and '_', of which the last is not a
/// number. Throws Error(kUsage): "URL 'text': reason".
Url parse_url(std::string_view text);

/// The target as a prefix of paths: without a slash at its end, so it may be empty.
std::string base_path(const Url& url);

}  // namespace fo::net
