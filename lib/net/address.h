// Where an HTTP server is: "HOST:PORT" and URLs. Nothing is looked up here (resolve.h does).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fo::net {

struct Address {
  /// Numeric, an IPv6 address without its brackets; of a server also a name.
  std::string host;
  std::uint16_t port = 0;
};

/// "127.0.0.1:8000", "[::1]:0", "localhost:8000" (127.0.0.1); no other names. Throws Error(kUsage).
Address parse_address(std::string_view text);

/// "HOST:PORT" of a server to connect to: HOST as parse_url takes it. Throws Error(kUsage).
Address parse_server(std::string_view text);

/// "HOST:PORT", an IPv6 address in brackets.
std::string to_string(const Address& address);

struct Url {
  /// The Unix socket; empty for TCP.
  std::string socket_path;
  bool is_tls = false;
  Address address;
  /// Path and query as they go into the request line; at least "/".
  std::string target;
};

/// "http[s]://HOST[:PORT][/PATH]" or "unix:SOCKET[:/PATH]" (SOCKET without a colon). HOST is a
/// numeric address or a name: labels of letters, digits, '-' and '_', the last one no number.
/// Throws Error(kUsage): "URL 'text': reason".
Url parse_url(std::string_view text);

}  // namespace fo::net
