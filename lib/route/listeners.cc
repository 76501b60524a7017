#include "route/listeners.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "loop/adopt.h"
#include "loop/both.h"
#include "loop/pause.h"
#include "net/address.h"
#include "os/log.h"

namespace fo::route {
namespace {

using Tcp = boost::asio::ip::tcp;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;
using boost::asio::awaitable;

constexpr char kNextSuffix[] = ".next";
constexpr base::Duration kRetryInterval = std::chrono::milliseconds(20);
constexpr char kCopy[] = "copy a listening socket";

bool is_regular_file(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

// The path of a listening Unix socket; empty for any other socket.
std::string path_of(int fd) {
  sockaddr_un name{};
  socklen_t size = sizeof name;
  auto* const generic = reinterpret_cast<sockaddr*>(&name);
  if (::getsockname(fd, generic, &size) != 0 || name.sun_family != AF_UNIX) return {};
  const std::size_t length = size - offsetof(sockaddr_un, sun_path);
  return {name.sun_path, ::strnlen(name.sun_path, length)};
}

Tcp::endpoint endpoint_at(const net::Address& address) {
  return {boost::asio::ip::make_address(address.host), address.port};
}

Tcp::endpoint endpoint_of(int fd) {
  Tcp::endpoint bound;
  auto size = static_cast<socklen_t>(bound.capacity());
  if (::getsockname(fd, bound.data(), &size) != 0) {
    base::throw_errno(errno, ExitStatus::kOsError, "ask for a socket's address");
  }
  return bound;
}

}  // namespace

Listeners::Listeners(boost::asio::any_io_executor executor, std::string admin_path)
    : admin_path_(std::move(admin_path)),
      next_path_(admin_path_ + kNextSuffix),
      withdrawn_(std::move(executor)) {}

void Listeners::open() {
  os::ServerSocket admin = os::open_server_socket(admin_path_);
  next_ = os::replace_socket(next_path_);
  lock_ = std::move(admin.lock);
  admin_ = std::move(admin.listener);
  names_.push_back(std::move(admin.path));
  names_.emplace_back(next_path_);
}

awaitable<void> Listeners::take_over(Deadline deadline) {
  for (;;) {
    received_ = co_await net::receive_sockets(next_path_, deadline);
    if (has_received()) {
      identify(std::move(received_.sockets));
      os::log(os::LogLevel::kInfo, "received the sockets of the running router");
      co_return;
    }
    try {
      open();
      co_return;
    } catch (const Error& error) {
      // Another router has the lock: it is ending, has just begun, or hands its sockets over.
      if (error.status() != ExitStatus::kCannotCreate || deadline.expired()) throw;
    }
    co_await loop::pause_for(kRetryInterval);
  }
}

void Listeners::identify(std::vector<UniqueFd> sockets) {
  for (UniqueFd& socket : sockets) {
    const std::string path = path_of(socket.get());
    UniqueFd& place = is_regular_file(socket.get()) ? lock_
                      : path.ends_with(kNextSuffix) ? next_
                      : !path.empty()               ? admin_
                                                    : spare_.emplace_back();
    place = std::move(socket);
  }
  if (lock_ && admin_ && next_) return;
  throw Error(ExitStatus::kProtocol, "take over from the router at " + base::quoted(admin_path_) +
                                         ": sockets are missing");
}

http::Listener Listeners::tcp(const std::string& address) {
  const net::Address parsed = net::parse_address(address);
  const Tcp::endpoint wanted = endpoint_at(parsed);
  const auto found = std::find_if(spare_.begin(), spare_.end(), [&](const UniqueFd& socket) {
    return endpoint_of(socket.get()) == wanted;
  });
  http::Listener listener;
  if (found == spare_.end()) {
    listener = http::listen_tcp(address);
  } else {
    listener = {std::move(*found), parsed.port};
    spare_.erase(found);
  }
  tcp_.push_back(loop::duplicate(listener.fd.get(), kCopy));
  return listener;
}

awaitable<void> Listeners::own() {
  spare_.clear();
  if (!has_received()) co_return;
  // Without a deadline, because clients are served already: a router that hangs cannot prevent
  // that.
  const bool is_ours = co_await net::confirm_sockets(received_, Deadline::never());
  received_ = {};
  if (!is_ours) {
    os::log(os::LogLevel::kWarning, "the other router has ended during the takeover");
    // It may have removed the names.
    admin_ = os::replace_socket(admin_path_);
    next_ = os::replace_socket(next_path_);
  }
  names_.emplace_back(admin_path_);
  names_.emplace_back(next_path_);
}

UniqueFd Listeners::admin() const { return loop::duplicate(admin_.get(), kCopy); }

awaitable<void> Listeners::give(bool& is_given) {
  std::vector<int> sockets{lock_.get(), admin_.get(), next_.get()};
  for (const UniqueFd& socket : tcp_) sockets.push_back(socket.get());
  // Without a timeout for the next router: until it has confirmed or ended, nobody can know whether
  // it accepts clients.
  is_given = co_await net::give_sockets(next_.get(), sockets, Deadline::never(), std::nullopt);
}

awaitable<void> Listeners::until_withdrawn() {
  while (!is_withdrawn_) co_await withdrawn_.wait();
}

awaitable<void> Listeners::offer() {
  bool is_given = false;
  if (!is_withdrawn_) co_await loop::run_both(give(is_given), until_withdrawn());
  if (!is_given) co_await give(is_given);
  for (os::OwnedPath& name : names_) name.release();
  lock_.reset();
  admin_.reset();
  next_.reset();
  tcp_.clear();
}

void Listeners::withdraw_tcp(const std::string& kept) {
  is_withdrawn_ = true;
  withdrawn_.notify();
  std::erase_if(tcp_, [&](const UniqueFd& socket) {
    return kept.empty() || endpoint_of(socket.get()) != endpoint_at(net::parse_address(kept));
  });
}

}  // namespace fo::route
