#include "net/connect.h"

#include <sys/socket.h>

#include <boost/asio/error.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "base/unique_fd.h"
#include "loop/adopt.h"
#include "loop/alarm.h"
#include "loop/pause.h"
#include "os/socket/unix_socket.h"

namespace fo::net {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using base::Error;
using base::ExitStatus;
using boost::system::error_code;
using StreamProtocol = asio::generic::stream_protocol;

constexpr base::Duration kConnectRetryInterval = std::chrono::milliseconds(1);

// `socket` is not open yet.
awaitable<error_code> try_connect(tcp::socket& socket, tcp::endpoint endpoint,
                                  base::Deadline deadline) {
  // Children would inherit a socket that asio creates.
  base::UniqueFd fd(
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int err = errno;
  if (!fd) co_return error_code(err, boost::system::system_category());
  error_code error;
  loop::adopt(socket, std::move(fd), error, endpoint.protocol());
  if (error) co_return error;
  socket.set_option(tcp::no_delay(true), error);
  if (error) co_return error;
  bool is_late = false;
  loop::Alarm alarm(socket.get_executor());
  alarm.set(deadline, [&] {
    error_code ignored;
    is_late = true;
    socket.close(ignored);
  });
  co_await socket.async_connect(endpoint, asio::redirect_error(asio::use_awaitable, error));
  if (is_late) co_return asio::error::timed_out;
  // A cancellation ends the whole connect(), not only this endpoint.
  if (error == asio::error::operation_aborted) throw boost::system::system_error(error);
  if (error) co_return error;
  // asio has registered the connecting socket for writability, and would keep that registration:
  // each wait for the peer's bytes would first wake because the socket is writable. So the socket
  // is registered again.
  fd.reset(socket.release(error));
  if (!error) loop::adopt(socket, std::move(fd), error, endpoint.protocol());
  co_return error;
}

// Returns nullopt if the backlog is full and time is left.
std::optional<base::UniqueFd> try_connect_unix(const std::string& path, const base::Deadline& end) {
  try {
    return os::connect_unix(path, base::Deadline::after(base::Duration::zero()));
  } catch (const Error& error) {
    if (error.status() != ExitStatus::kTryAgain || end.expired()) throw;
    return std::nullopt;
  }
}

}  // namespace

awaitable<tcp::socket> connect(std::vector<tcp::endpoint> endpoints, base::Deadline deadline,
                               std::string what) {
  tcp::socket socket(co_await asio::this_coro::executor);
  error_code error;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    std::optional<base::Duration> share = deadline.remaining();
    if (share) *share /= static_cast<std::ptrdiff_t>(endpoints.size() - i);
    const base::Deadline until = base::Deadline::after(share);
    error = co_await try_connect(socket, endpoints[i], until);
    if (!error) co_return socket;
    error_code ignored;
    socket.close(ignored);
    if (deadline.expired()) throw Error(ExitStatus::kTryAgain, what + ": timed out");
  }
  const bool is_ours = base::is_exhausted(error);
  throw Error(is_ours ? ExitStatus::kTryAgain : ExitStatus::kUnavailable, what, error);
}

awaitable<StreamProtocol::socket> connect_unix(std::string path, base::Deadline deadline) {
  StreamProtocol::socket socket(co_await asio::this_coro::executor);
  for (;;) {
    std::optional<base::UniqueFd> fd = try_connect_unix(path, deadline);
    if (fd) {
      loop::adopt(socket, *std::move(fd), "connect to '" + path + "'", StreamProtocol(AF_UNIX, 0));
      co_return socket;
    }
    // Linux has nothing to wait on until a backlog has room.
    co_await loop::pause_for(kConnectRetryInterval);
  }
}

}  // namespace fo::net
