// Connections to servers that have more than one address. Names are looked up before (resolve.h).
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <vector>

#include "base/deadline.h"

namespace fo::net {

/// A connection to the first of `endpoints` that takes one. They are tried in turn, and each has
/// its share of the time that is left, so that one that does not answer leaves some to the others.
/// CLOEXEC, and nothing waits to be sent (TCP_NODELAY). Throws "`what`: reason" as kUnavailable,
/// with the reason of the last, or kTryAgain when the deadline passes; when it is cancelled,
/// boost::system::system_error.
boost::asio::awaitable<boost::asio::ip::tcp::socket> connect(
    std::vector<boost::asio::ip::tcp::endpoint> endpoints, base::Deadline deadline,
    std::string what);

/// A connection to the Unix socket at `path`, whose backlog is waited for where it is full. Throws
/// what os::connect_unix throws; when it is cancelled, boost::system::system_error.
boost::asio::awaitable<boost::asio::generic::stream_protocol::socket> connect_unix(
    std::string path, base::Deadline deadline);

}  // namespace fo::net
