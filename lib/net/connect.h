// Connections to servers with one or more addresses. Names are resolved before (resolve.h).
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <vector>

#include "base/deadline.h"

namespace fo::net {

/// Connects to the first of `endpoints` that accepts. They are tried in order, each with an equal
/// share of the remaining time, so that one that does not answer leaves time for the others. The
/// socket is CLOEXEC and sends without delay (TCP_NODELAY). Throws Error("`what`: reason") with the
/// code and reason of the last endpoint: kTryAgain if base::is_exhausted() is true of that code,
/// otherwise kUnavailable. Throws kTryAgain if the deadline passes, and boost::system::system_error
/// if cancelled.
boost::asio::awaitable<boost::asio::ip::tcp::socket> connect(
    std::vector<boost::asio::ip::tcp::endpoint> endpoints, base::Deadline deadline,
    std::string what);

/// Connects to the Unix socket at `path`, and waits while its backlog is full. Throws what
/// os::connect_unix throws; boost::system::system_error if cancelled.
boost::asio::awaitable<boost::asio::generic::stream_protocol::socket> connect_unix(
    std::string path, base::Deadline deadline);

}  // namespace fo::net
