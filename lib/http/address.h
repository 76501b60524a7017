// Where an HTTP server is: "HOST:PORT" and URLs. Hosts are numeric or "localhost" (127.0.0.1):
// looking names up would tie static programs to one libc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fo::http {

struct Address {
  /// Numeric, an IPv6 address without its brackets.
  std::string host;
  std::uint16_t port = 0;
};

/// "127.0.0.1:8000", "[::1]:0", "localhost:8000". Throws Error(kUsage).
Address parse_address(std::string_view text);

/// As parse_address reads it: an IPv6 address in brackets.
std::string to_string(const Address& address);

struct Url {
  /// The Unix socket; empty for TCP.
  std::string socket_path;
  Address address;
  /// Path and query as they go into the request line; at least "/".
  std::string target;
};

/// "http://HOST[:PORT][/PATH]" or "unix:SOCKET[:/PATH]" (SOCKET without a colon).
/// Throws Error(kUsage): "URL 'text': reason".
Url parse_url(std::string_view text);

}  // namespace fo::http
