#include "engine/publish/stream_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <chrono>

#include "base/error.h"
#include "loop/pause.h"
#include "net/address.h"
#include "os/socket/unix_socket.h"

namespace fo::engine {

namespace asio = boost::asio;
using asio::awaitable;
using base::UniqueFd;
using boost::system::error_code;

namespace {

// The interval of attempts to connect to a Unix socket with a full backlog, which has no event.
constexpr base::Duration kFullBacklogInterval = std::chrono::milliseconds(5);

UniqueFd open_socket(const StreamEndpoint& endpoint) {
  const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  return UniqueFd(::socket(endpoint.protocol().family(), type, 0));
}

socklen_t size_of(const StreamEndpoint& endpoint) {
  return static_cast<socklen_t>(endpoint.size());
}

}  // namespace

StreamEndpoint tcp_endpoint(const std::string& text) {
  const net::Address address = net::parse_address(text);
  return asio::ip::tcp::endpoint(asio::ip::make_address(address.host), address.port);
}

StreamEndpoint stream_endpoint(const std::string& text) {
  if (text.find('/') == std::string::npos) return tcp_endpoint(text);
  os::check_socket_path(text);
  return asio::local::stream_protocol::endpoint(text);
}

UniqueFd listen_on(const StreamEndpoint& endpoint, const std::string& name) {
  UniqueFd fd = open_socket(endpoint);
  if (fd) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR);
  if (!fd || ::bind(fd.get(), endpoint.data(), size_of(endpoint)) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    base::throw_cannot_create(errno, "listen on " + base::quoted(name));
  }
  return fd;
}

UniqueFd make_socket(const StreamEndpoint& peer) {
  UniqueFd fd = open_socket(peer);
  if (!fd) base::throw_errno(errno, "create a socket");
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY);
  return fd;
}

awaitable<int> connect(WatchedSocket& socket, const StreamEndpoint& peer) {
  while (socket.is_open()) {
    const int err = ::connect(socket.native_handle(), peer.data(), size_of(peer)) == 0 ? 0 : errno;
    // The next attempt is at once: over the loopback the connection is complete by then, and a
    // socket that has once waited to be writable would wake epoll(7) again and again.
    if (err == EINPROGRESS || err == EINTR) continue;
    if (err == EALREADY) {
      co_await wait_until(socket, WatchedSocket::wait_write);
    } else if (err == EAGAIN) {
      co_await loop::pause_for(kFullBacklogInterval);
    } else {
      co_return err == EISCONN ? 0 : err;
    }
  }
  co_return ETIMEDOUT;
}

awaitable<bool> wait_until(WatchedSocket& socket, WatchedSocket::wait_type can) {
  error_code error;
  co_await socket.async_wait(can, asio::redirect_error(asio::use_awaitable, error));
  co_return !error && socket.is_open();
}

void close(WatchedSocket& socket, bool reset) {
  if (!socket.is_open()) return;
  const linger at_once{1, 0};
  if (reset) {
    static_cast<void>(
        ::setsockopt(socket.native_handle(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
  }
  error_code ignored;
  socket.close(ignored);
}

void set_option(int fd, int level, int option) {
  const int on = 1;
  static_cast<void>(::setsockopt(fd, level, option, &on, sizeof on));
}

}  // namespace fo::engine
