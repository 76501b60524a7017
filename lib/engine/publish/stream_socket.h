// Non-blocking stream sockets for the published address, watched by the loop: addresses, listening,
// connecting, waiting, closing. Reading and writing is left to the caller.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <string>

#include "base/unique_fd.h"

namespace fo::engine {

using StreamEndpoint = boost::asio::generic::stream_protocol::endpoint;
using WatchedSocket = boost::asio::posix::stream_descriptor;

/// Parses "HOST:PORT". Throws Error(kUsage).
StreamEndpoint tcp_endpoint(const std::string& text);
/// Parses "HOST:PORT", or the path of a Unix socket, which contains a '/'. Throws Error(kUsage).
StreamEndpoint stream_endpoint(const std::string& text);

/// Listens on the endpoint; `name` is the endpoint in messages. Throws Error(kNotPermitted or
/// kCannotCreate).
base::UniqueFd listen_on(const StreamEndpoint& endpoint, const std::string& name);

/// Creates a socket that is not connected, without Nagle's delay. Throws Error(kOsError).
base::UniqueFd make_socket(const StreamEndpoint& peer);

/// Connects the socket. Returns 0 or an errno; ETIMEDOUT if the socket was closed meanwhile.
boost::asio::awaitable<int> connect(WatchedSocket& socket, const StreamEndpoint& peer);

/// Returns when the socket is readable or writable, or has an error. False if it was closed or
/// detached from the loop.
boost::asio::awaitable<bool> wait_until(WatchedSocket& socket, WatchedSocket::wait_type can);

/// Closes the socket if it is open. With `reset`, the peer sees a reset, and unsent bytes are
/// discarded.
void close(WatchedSocket& socket, bool reset);

/// Turns on an option of setsockopt(2), if the socket supports it.
void set_option(int fd, int level, int option);

}  // namespace fo::engine
