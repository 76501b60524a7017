#include "http/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/units.h"

namespace fo::http {
namespace {

using base::Error;
using base::ExitStatus;
using base::quoted;

std::optional<std::string> numeric_host(std::string_view text) {
  if (text == "localhost") return "127.0.0.1";
  const bool bracketed = text.size() > 2 && text.front() == '[' && text.back() == ']';
  const std::string host(bracketed ? text.substr(1, text.size() - 2) : text);
  std::array<std::uint8_t, 16> bytes{};
  if (::inet_pton(bracketed ? AF_INET6 : AF_INET, host.c_str(), bytes.data()) != 1) {
    return std::nullopt;
  }
  return host;
}

Address parse_authority(std::string_view text, std::optional<std::uint16_t> default_port,
                        const std::string& what) {
  std::size_t colon = text.rfind(':');
  // A colon inside brackets belongs to the address.
  if (colon != std::string_view::npos && text.find(']', colon) != std::string_view::npos) {
    colon = std::string_view::npos;
  }
  Address address;
  if (colon == std::string_view::npos) {
    if (!default_port) throw Error(ExitStatus::kUsage, what + ": want HOST:PORT");
    address.port = *default_port;
  } else {
    const std::optional<std::uint64_t> port = base::parse_uint(text.substr(colon + 1));
    if (!port || *port > 65535) throw Error(ExitStatus::kUsage, what + ": not a port number");
    address.port = static_cast<std::uint16_t>(*port);
  }
  const std::optional<std::string> host = numeric_host(text.substr(0, colon));
  if (!host) {
    throw Error(ExitStatus::kUsage, what + ": the host must be a numeric address or localhost");
  }
  address.host = *host;
  return address;
}

}  // namespace

Address parse_address(std::string_view text) {
  return parse_authority(text, std::nullopt, "address " + quoted(text));
}

std::string to_string(const Address& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return (is_v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

Url parse_url(std::string_view text) {
  const std::string what = "URL " + quoted(text);
  // What could end the request line early must not get into it.
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c >= 0x7f; })) {
    throw Error(ExitStatus::kUsage, what + ": blanks, control or non-ASCII characters");
  }
  constexpr std::string_view kHttp = "http://";
  constexpr std::string_view kUnix = "unix:";
  Url url;
  url.target = "/";
  if (text.starts_with(kHttp)) {
    text.remove_prefix(kHttp.size());
    const std::size_t end = std::min(text.find_first_of("/?#"), text.size());
    url.address = parse_authority(text.substr(0, end), 80, what);
    text.remove_prefix(end);
  } else if (text.starts_with(kUnix)) {
    text.remove_prefix(kUnix.size());
    const std::size_t end = std::min(text.find(':'), text.size());
    url.socket_path = text.substr(0, end);
    if (url.socket_path.empty()) throw Error(ExitStatus::kUsage, what + ": no socket path");
    text.remove_prefix(std::min(end + 1, text.size()));
  } else {
    throw Error(ExitStatus::kUsage, what + ": want http://HOST:PORT/PATH or unix:SOCKET:/PATH");
  }
  text = text.substr(0, text.find('#'));
  if (text.starts_with('/')) {
    url.target = text;
  } else if (text.starts_with('?')) {
    url.target += text;
  } else if (!text.empty()) {
    throw Error(ExitStatus::kUsage, what + ": the path must begin with '/'");
  }
  return url;
}

}  // namespace fo::http
