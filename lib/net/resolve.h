// Looking names up without the libc, whose look-up would tie a static program to one libc's files:
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

/// The address that `host` spells out (IPv6 without brackets); nullopt for a name.
std::optional<boost::asio::ip::address> numeric_address(const std::string& host);

/// Whether a numeric address is one that only this machine reaches.
bool is_loopback(const std::string& host);

/// The addresses of `host`, best first, 16 at most; a numeric address (IPv6 without brackets) and
/// "localhost" (127.0.0.1) without asking anybody. Never empty. `name_servers`,
/// "ADDRESS:PORT[,ADDRESS:PORT…]", are asked instead of those in /etc/resolv.conf. Throws
/// kUnavailable for a name that nobody knows or when no server answers, kTryAgain when the deadline
/// passes; when it is cancelled, boost::system::system_error.
boost::asio::awaitable<std::vector<boost::asio::ip::tcp::endpoint>> resolve(
    std::string host, std::uint16_t port, base::Deadline deadline, std::string name_servers = {});

}  // namespace fo::net
