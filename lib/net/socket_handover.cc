#include "net/socket_handover.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/this_coro.hpp>
#include <cerrno>
#include <cstdint>
#include <functional>

#include "base/error.h"
#include "loop/acceptor.h"
#include "loop/adopt.h"
#include "loop/alarm.h"
#include "loop/event.h"
#include "os/log_limit.h"
#include "os/socket/fd_passing.h"
#include "os/socket/unix_socket.h"

// The giver sends batches, each a Batch and its descriptors. The receiver answers each with one
// byte before the next is sent, because the kernel limits descriptors in flight; the answer to the
// last one is its confirmation. Then the giver sends one byte: the receiver owns everything.
namespace fo::net {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;
using boost::asio::awaitable;

constexpr char kHandOver[] = "hand sockets over with";
constexpr std::size_t kMaxPerBatch = 100;
constexpr std::size_t kMaxSockets = 16384;

struct Batch {
  std::uint32_t here = 0;
  /// The number of descriptors in later batches.
  std::uint32_t to_come = 0;
};

// A non-blocking socket with one deadline for all waits. Its owner keeps the descriptor.
class Peer {
 public:
  Peer(int fd, const Deadline& deadline) : fd_(fd), deadline_(deadline) {}

  awaitable<void> wait(short events) const {
    if (deadline_.expired()) throw Error(ExitStatus::kTryAgain, "hand sockets over: timed out");
    co_await loop::until_ready(fd_, events, deadline_);
  }

  /// False if the peer has closed the connection.
  awaitable<bool> send(std::span<const std::byte> bytes, std::span<const int> fds) const {
    while (!bytes.empty()) {
      const std::ptrdiff_t sent = os::send_with_fds(fd_, bytes, fds);
      if (sent == -EAGAIN) {
        co_await wait(POLLOUT);
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
  awaitable<bool> receive(std::span<std::byte> bytes, std::vector<UniqueFd>& fds) const {
    while (!bytes.empty()) {
      const std::ptrdiff_t got = os::receive_with_fds(fd_, bytes, fds);
      if (got == -EAGAIN) {
        co_await wait(POLLIN);
        continue;
      }
      if (got == 0 || got == -ECONNRESET) co_return false;
      if (got < 0) {
        base::throw_errno(static_cast<int>(-got), ExitStatus::kOsError, "receive sockets");
      }
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
    co_return true;
  }

 private:
  int fd_;
  Deadline deadline_;
};

std::span<std::byte> bytes_of(auto& object) {
  return std::as_writable_bytes(std::span(&object, 1));
}

// Sends or receives the one byte to continue. False if the peer has closed the connection.
awaitable<bool> send_mark(const Peer& peer) {
  char mark = 1;
  const std::span<const int> no_fds;
  const bool sent = co_await peer.send(bytes_of(mark), no_fds);
  co_return sent;
}

awaitable<bool> receive_mark(const Peer& peer) {
  char mark = 0;
  std::vector<UniqueFd> uninvited;
  const bool received = co_await peer.receive(bytes_of(mark), uninvited);
  co_return received;
}

awaitable<bool> give(const Peer& peer, std::span<const int> sockets) {
  for (std::size_t at = 0; at < sockets.size();) {
    const std::size_t count = std::min(kMaxPerBatch, sockets.size() - at);
    Batch batch{static_cast<std::uint32_t>(count),
                static_cast<std::uint32_t>(sockets.size() - at - count)};
    const std::span<const int> part = sockets.subspan(at, count);
    const bool sent = co_await peer.send(bytes_of(batch), part);
    if (!sent) co_return false;
    const bool answered = co_await receive_mark(peer);
    if (!answered) co_return false;
    at += count;
  }
  const bool given = co_await send_mark(peer);
  co_return given;
}

}  // namespace

awaitable<bool> give_sockets(int listener, std::span<const int> sockets, Deadline deadline,
                             std::optional<base::Duration> receiver_timeout) {
  const char* const what = "accept a process for the sockets";
  const boost::asio::any_io_executor executor = co_await boost::asio::this_coro::executor;
  loop::Acceptor receivers(executor, loop::duplicate(listener, what), what);
  loop::Alarm alarm(executor);
  alarm.set(deadline, [&] { receivers.close(); });
  const std::function<bool()> is_full = [] { return false; };
  os::LogLimit log_limit;
  while (!deadline.expired()) {
    const UniqueFd fd = co_await receivers.next(is_full);
    if (!fd) break;
    std::string failure = "hand sockets over: the other process closed the connection";
    try {
      os::check_own_user(fd.get(), kHandOver);
      const Peer receiver(fd.get(), deadline.sooner(Deadline::after(receiver_timeout)));
      const bool given = co_await give(receiver, sockets);
      if (given) co_return true;
    } catch (const Error& error) {
      failure = error.what();
    }
    log_limit.log(os::LogLevel::kWarning, failure, failure);
  }
  co_return false;
}

awaitable<ReceivedSockets> receive_sockets(std::string path, Deadline deadline) {
  ReceivedSockets received;
  try {
    received.giver = os::connect_unix(path, Deadline::after(base::Duration::zero()));
  } catch (const Error& error) {
    if (error.status() != ExitStatus::kUnavailable) throw;
    co_return ReceivedSockets{};
  }
  const int fd = received.giver.get();
  os::check_own_user(fd, kHandOver);
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    base::throw_errno(errno, "receive sockets from " + base::quoted(path));
  }
  const Peer giver(fd, deadline);
  std::vector<UniqueFd>& fds = received.sockets;
  for (std::size_t expected = 1; fds.size() < expected;) {
    const std::size_t before = fds.size();
    if (before > 0) {
      const bool answered = co_await send_mark(giver);
      if (!answered) co_return ReceivedSockets{};
    }
    Batch batch;
    const bool is_read = co_await giver.receive(bytes_of(batch), fds);
    if (!is_read) co_return ReceivedSockets{};
    if (before == 0) expected = std::size_t{batch.here} + batch.to_come;
    if (batch.here == 0 || fds.size() != before + batch.here || expected > kMaxSockets ||
        fds.size() + batch.to_come != expected) {
      throw Error(ExitStatus::kProtocol,
                  "receive sockets from " + base::quoted(path) + ": wrong number of sockets");
    }
  }
  co_return received;
}

awaitable<bool> confirm_sockets(const ReceivedSockets& received, Deadline deadline) {
  const Peer giver(received.giver.get(), deadline);
  const bool sent = co_await send_mark(giver);
  if (!sent) co_return false;
  const bool ours = co_await receive_mark(giver);
  co_return ours;
}

}  // namespace fo::net
