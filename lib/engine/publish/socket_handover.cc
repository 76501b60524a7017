#include "engine/publish/socket_handover.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/this_coro.hpp>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/publish/stream_socket.h"
#include "loop/adopt.h"
#include "loop/alarm.h"
#include "loop/pause.h"
#include "os/fd_passing.h"
#include "os/log.h"
#include "os/server_socket.h"
#include "os/unix_socket.h"

// The giver sends batches, each a Batch and its descriptors, beginning with the listener; the taker
// answers each with one byte before the next is sent, because the kernel limits descriptors in
// flight. After the taker's last byte, the giver confirms with one byte that the taker owns
// everything; a taker without that byte keeps nothing.
namespace fo::engine {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;

constexpr std::size_t kMaxPerBatch = 100;
constexpr std::size_t kMaxSockets = 16384;
// The timeout of one taker, so that one that hangs leaves time for another.
constexpr base::Duration kTakerTimeout = std::chrono::seconds(5);
constexpr base::Duration kOfferPause = std::chrono::milliseconds(10);

struct Batch {
  std::uint32_t here = 0;
  /// The number of descriptors in later batches.
  std::uint32_t to_come = 0;
};

// A non-blocking socket with one deadline for all waits.
class Peer {
 public:
  Peer(const asio::any_io_executor& executor, UniqueFd fd, const Deadline& deadline)
      : socket_(executor), alarm_(socket_, deadline) {
    loop::adopt(socket_, std::move(fd), "watch a socket");
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] int fd() { return socket_.native_handle(); }

  awaitable<void> wait(WatchedSocket::wait_type can) {
    const bool open = co_await wait_until(socket_, can);
    if (!open) throw Error(ExitStatus::kTryAgain, "hand sockets over: timed out");
  }

  /// False if the peer has closed the connection.
  awaitable<bool> send(std::span<const std::byte> bytes, std::span<const int> fds) {
    while (!bytes.empty()) {
      const std::ptrdiff_t sent = os::send_with_fds(fd(), bytes, fds);
      if (sent == -EAGAIN) {
        co_await wait(WatchedSocket::wait_write);
        continue;
      }
      if (sent == -EPIPE || sent == -ECONNRESET) co_return false;
      if (sent < 0) base::throw_errno(static_cast<int>(-sent), "hand sockets over");
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      fds = {};
    }
    co_return true;
  }

  /// False at the end of the connection.
  awaitable<bool> receive(std::span<std::byte> bytes, std::vector<UniqueFd>& fds) {
    while (!bytes.empty()) {
      const std::ptrdiff_t got = os::receive_with_fds(fd(), bytes, fds);
      if (got == -EAGAIN) {
        co_await wait(WatchedSocket::wait_read);
        continue;
      }
      if (got == 0 || got == -ECONNRESET) co_return false;
      if (got < 0) base::throw_errno(static_cast<int>(-got), ExitStatus::kOsError, "take sockets");
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
    co_return true;
  }

 private:
  WatchedSocket socket_;
  loop::Alarm<WatchedSocket> alarm_;
};

std::span<std::byte> bytes_of(auto& object) {
  return std::as_writable_bytes(std::span(&object, 1));
}

// Refuses peers of another user, as giver and as taker.
void check_user(int fd) {
  const os::PeerCredentials peer = os::peer_credentials(fd);
  if (peer.uid == ::geteuid() || peer.uid == 0) return;
  throw Error(ExitStatus::kNotPermitted,
              "hand sockets over with process " + std::to_string(peer.pid) + ": another user's");
}

// Sends or receives the one byte to continue. False if the peer has closed the connection.
awaitable<bool> send_mark(Peer& peer) {
  char mark = 1;
  const std::span<const int> no_fds;
  const bool sent = co_await peer.send(bytes_of(mark), no_fds);
  co_return sent;
}

awaitable<bool> receive_mark(Peer& peer) {
  char mark = 0;
  std::vector<UniqueFd> uninvited;
  const bool received = co_await peer.receive(bytes_of(mark), uninvited);
  co_return received;
}

// Removes the socket of a killed giver. A live giver holds the lock beside the socket.
void remove_dead_offer(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  try {
    if (os::try_lock_path(path + ".lock")) ::unlink(path.c_str());
  } catch (const Error&) {  // a leftover socket does no harm
  }
}

awaitable<bool> give(Peer& peer, const PublishedSockets& sockets) {
  check_user(peer.fd());
  std::vector<int> fds{sockets.listener.get()};
  for (const UniqueFd& client : sockets.clients) fds.push_back(client.get());
  for (std::size_t at = 0; at < fds.size();) {
    const std::size_t count = std::min(kMaxPerBatch, fds.size() - at);
    Batch batch{static_cast<std::uint32_t>(count),
                static_cast<std::uint32_t>(fds.size() - at - count)};
    const std::span<const int> part = std::span<const int>(fds).subspan(at, count);
    const bool sent = co_await peer.send(bytes_of(batch), part);
    if (!sent) co_return false;
    const bool taken = co_await receive_mark(peer);
    if (!taken) co_return false;
    at += count;
  }
  const bool confirmed = co_await send_mark(peer);
  co_return confirmed;
}

}  // namespace

awaitable<bool> offer_sockets(std::string path, PublishedSockets& sockets, Deadline deadline) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  os::ServerSocket server = os::open_server_socket(path);
  Peer listener(executor, std::move(server.listener), deadline);
  for (;;) {
    try {
      co_await listener.wait(WatchedSocket::wait_read);
    } catch (const Error&) {
      co_return false;
    }
    try {
      UniqueFd fd(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      // The taker may have disconnected already.
      if (!fd && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR)) continue;
      if (!fd) base::throw_errno(errno, "accept a process for the sockets");
      Peer taker(executor, std::move(fd), deadline.sooner(Deadline::after(kTakerTimeout)));
      const bool given = co_await give(taker, sockets);
      if (given) {
        sockets = {};
        co_return true;
      }
      os::log(os::LogLevel::kWarning, "hand sockets over: the other process closed the connection");
    } catch (const Error& error) {
      os::log(os::LogLevel::kWarning, "{}", error.what());
    }
    // Errors that repeat at once, such as exhausted descriptors, must not keep the loop busy.
    co_await loop::pause_for(kOfferPause);
  }
}

awaitable<PublishedSockets> take_sockets(std::string path, Deadline deadline) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  UniqueFd fd;
  try {
    fd = os::connect_unix(path, Deadline::after(base::Duration::zero()));
  } catch (const Error& error) {
    if (error.status() != ExitStatus::kUnavailable) throw;
    remove_dead_offer(path);
    co_return PublishedSockets{};
  }
  check_user(fd.get());
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    base::throw_errno(errno, "take sockets from " + base::quoted(path));
  }
  Peer giver(executor, std::move(fd), deadline);
  std::vector<UniqueFd> fds;
  for (std::size_t wanted = 1; fds.size() < wanted;) {
    const std::size_t before = fds.size();
    Batch batch;
    const bool received = co_await giver.receive(bytes_of(batch), fds);
    if (!received) co_return PublishedSockets{};
    const bool is_first = before == 0;
    if (is_first) wanted = std::size_t{batch.here} + batch.to_come;
    if (batch.here == 0 || fds.size() != before + batch.here || wanted > kMaxSockets ||
        fds.size() + batch.to_come != wanted) {
      throw Error(ExitStatus::kProtocol,
                  "take sockets from " + base::quoted(path) + ": wrong number of sockets");
    }
    const bool answered = co_await send_mark(giver);
    if (!answered) co_return PublishedSockets{};
  }
  const bool ours = co_await receive_mark(giver);
  if (!ours) co_return PublishedSockets{};
  PublishedSockets taken;
  taken.listener = std::move(fds.front());
  taken.clients.assign(std::make_move_iterator(fds.begin() + 1),
                       std::make_move_iterator(fds.end()));
  co_return taken;
}

}  // namespace fo::engine
