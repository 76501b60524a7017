// Name resolution without the libc, whose resolver would tie a static program to one libc's files:
// c-ares reads /etc/hosts and /etc/resolv.conf itself.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"

namespace fo::net {

/// The address that `host` contains in numeric form (IPv6 without brackets); nullopt for a name.
std::optional<boost::asio::ip::address> numeric_address(const std::string& host);

/// Whether `host` is a numeric loopback address.
bool is_loopback(const std::string& host);

/// Returns the addresses of `host`, best first, at most 16 and at least one. A numeric address
/// (IPv6 without brackets) and "localhost" (127.0.0.1) need no query. `name_servers`,
/// "ADDRESS:PORT[,ADDRESS:PORT…]", replace those in /etc/resolv.conf. Throws kUnavailable for an
/// unknown name or if no server answers, kTryAgain if the deadline passes, kOsError;
/// boost::system::system_error if cancelled.
boost::asio::awaitable<std::vector<boost::asio::ip::tcp::endpoint>> resolve(
    std::string host, std::uint16_t port, base::Deadline deadline, std::string name_servers = {});

}  // namespace fo::net
