#include "net/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "text/ascii.h"

namespace fo::net {
namespace {

using base::Error;
using base::ExitStatus;

constexpr std::size_t kMaxNameBytes = 253;
constexpr std::size_t kMaxLabelBytes = 63;

bool is_label(std::string_view label) {
  return !label.empty() && label.size() <= kMaxLabelBytes && label.front() != '-' &&
         label.back() != '-' && std::all_of(label.begin(), label.end(), [](char c) {
           return text::is_letter_or_digit(c) || c == '-' || c == '_';
         });
}

bool is_name(std::string_view text) {
  if (text.size() > kMaxNameBytes) return false;
  const std::vector<std::string_view> labels = text::split(text, '.');
  const std::string_view last = labels.back();
  // A name that ends in a number is an invalid numeric address.
  return std::all_of(labels.begin(), labels.end(), is_label) &&
         !std::all_of(last.begin(), last.end(), text::is_digit);
}

std::optional<std::string> numeric_host(std::string_view text) {
  const bool bracketed = text.size() > 2 && text.front() == '[' && text.back() == ']';
  std::string host(bracketed ? text.substr(1, text.size() - 2) : text);
  std::array<std::uint8_t, 16> bytes{};
  if (::inet_pton(bracketed ? AF_INET6 : AF_INET, host.c_str(), bytes.data()) != 1) {
    return std::nullopt;
  }
  return host;
}

// Splits off the port; the host is not checked.
Address split_authority(std::string_view text, std::optional<std::uint16_t> default_port,
                        const std::string& what) {
  std::size_t colon = text.rfind(':');
  // A colon inside brackets belongs to the address.
  if (colon != std::string_view::npos && text.find(']', colon) != std::string_view::npos) {
    colon = std::string_view::npos;
  }
  Address address;
  if (colon == std::string_view::npos) {
    if (!default_port) throw Error(ExitStatus::kUsage, what + ": expected HOST:PORT");
    address.port = *default_port;
  } else {
    const std::optional<std::uint64_t> port = base::parse_uint(text.substr(colon + 1));
    if (!port || *port > 65535) throw Error(ExitStatus::kUsage, what + ": not a port number");
    address.port = static_cast<std::uint16_t>(*port);
  }
  address.host = text.substr(0, colon);
  return address;
}

// The host and port of a server to connect to.
Address parse_authority(std::string_view text, std::optional<std::uint16_t> default_port,
                        const std::string& what) {
  Address address = split_authority(text, default_port, what);
  if (const std::optional<std::string> host = numeric_host(address.host)) {
    address.host = *host;
  } else if (!is_name(address.host)) {
    throw Error(ExitStatus::kUsage, what + ": the host is neither an address nor a name");
  }
  if (address.port == 0) throw Error(ExitStatus::kUsage, what + ": not a port number");
  return address;
}

}  // namespace

Address parse_address(std::string_view text) {
  const std::string what = "address " + base::quoted(text);
  Address address = split_authority(text, std::nullopt, what);
  if (address.host == "localhost") address.host = "127.0.0.1";
  const std::optional<std::string> host = numeric_host(address.host);
  if (!host) {
    throw Error(ExitStatus::kUsage, what + ": the host must be a numeric address or localhost");
  }
  address.host = *host;
  return address;
}

Address parse_server(std::string_view text) {
  const std::string what = "server " + base::quoted(text);
  return parse_authority(text, std::nullopt, what);
}

std::string to_string(const Address& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return (is_v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

Url parse_url(std::string_view text) {
  const std::string what = "URL " + base::quoted(text);
  // Reject characters that could end the request line early.
  if (!base::is_graphic(text)) {
    throw Error(ExitStatus::kUsage, what + ": contains blanks, control or non-ASCII characters");
  }
  constexpr std::string_view kHttp = "http://";
  constexpr std::string_view kHttps = "https://";
  constexpr std::string_view kUnix = "unix:";
  Url url;
  url.target = "/";
  url.is_tls = text.starts_with(kHttps);
  if (url.is_tls || text.starts_with(kHttp)) {
    text.remove_prefix(url.is_tls ? kHttps.size() : kHttp.size());
    const std::size_t end = std::min(text.find_first_of("/?#"), text.size());
    url.address = parse_authority(text.substr(0, end), url.is_tls ? 443 : 80, what);
    text.remove_prefix(end);
  } else if (text.starts_with(kUnix)) {
    text.remove_prefix(kUnix.size());
    const std::size_t end = std::min(text.find(':'), text.size());
    url.socket_path = text.substr(0, end);
    if (url.socket_path.empty()) throw Error(ExitStatus::kUsage, what + ": no socket path");
    text.remove_prefix(std::min(end + 1, text.size()));
  } else {
    throw Error(ExitStatus::kUsage,
                what + ": expected http[s]://HOST:PORT/PATH or unix:SOCKET:/PATH");
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

std::string base_path(const Url& url) {
  std::string path = url.target;
  while (path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace fo::net
