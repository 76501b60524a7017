// Non-blocking stream sockets as the published address needs them, watched by the loop: where they
// are, listening, connecting, waiting, closing. What is read and written is the caller's.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <string>

#include "base/unique_fd.h"

namespace fo::engine {

using StreamEndpoint = boost::asio::generic::stream_protocol::endpoint;
using WatchedSocket = boost::asio::posix::stream_descriptor;

/// "HOST:PORT". Throws Error(kUsage).
StreamEndpoint tcp_endpoint(const std::string& text);
/// "HOST:PORT", or the path of a Unix socket, which has a '/'. Throws Error(kUsage).
StreamEndpoint stream_endpoint(const std::string& text);

/// `name` is the endpoint's, for the Error(kNotPermitted or kCannotCreate).
base::UniqueFd listen_on(const StreamEndpoint& endpoint, const std::string& name);

/// Not connected yet, without Nagle's delay. Throws Error(kOsError).
base::UniqueFd make_socket(const StreamEndpoint& peer);

/// 0, or why not as an errno: ETIMEDOUT when the socket was closed meanwhile.
boost::asio::awaitable<int> connect(WatchedSocket& socket, const StreamEndpoint& peer);

/// Returns when the socket can be read or written, or is broken. False once it was closed or taken
/// away from the loop.
boost::asio::awaitable<bool> wait_until(WatchedSocket& socket, WatchedSocket::wait_type can);

/// `reset`: the peer is to see that it was cut, and gets nothing of what was not sent yet.
void close(WatchedSocket& socket, bool reset);

/// Turns an option of setsockopt(2) on where the socket knows it.
void set_option(int fd, int level, int option);

}  // namespace fo::engine
