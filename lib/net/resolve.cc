#include "net/resolve.h"

#include <ares.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/unique_fd.h"
#include "loop/event.h"

namespace fo::net {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using base::Error;
using base::ExitStatus;
using base::UniqueFd;

constexpr std::size_t kMaxAddresses = 16;
// Maximum number of events per read.
constexpr std::size_t kMaxEvents = 16;
// The first timeout of a server; c-ares doubles it each time all servers were tried. A lost packet
// must not cost a lease: a lease of one second has 300 ms for a whole renewal.
constexpr std::chrono::milliseconds kFirstTry(250);
// Enough for a slow server: 16 s in all.
constexpr int kTries = 6;

// Socket calls like those of c-ares itself, except that sockets are created with CLOEXEC and never
// raise SIGPIPE.

ares_socket_t open_socket(int family, int type, int protocol, void*) {
  return ::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
}

int close_socket(ares_socket_t fd, void*) { return ::close(fd); }

int connect_socket(ares_socket_t fd, const sockaddr* address, ares_socklen_t size, void*) {
  return ::connect(fd, address, size);
}

ares_ssize_t receive(ares_socket_t fd, void* bytes, std::size_t size, int flags, sockaddr* from,
                     ares_socklen_t* from_size, void*) {
  return ::recvfrom(fd, bytes, size, flags, from, from_size);
}

ares_ssize_t send(ares_socket_t fd, const iovec* pieces, int count, void*) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces);
  message.msg_iovlen = static_cast<std::size_t>(count);
  return ::sendmsg(fd, &message, MSG_NOSIGNAL);
}

constexpr ares_socket_functions kSocketFunctions{open_socket, close_socket, connect_socket, receive,
                                                 send};

// One lookup. One epoll set contains c-ares's sockets. So there is a single descriptor to wait for,
// and no callback into a coroutine that has ended.
class Lookup {
 public:
  Lookup(const std::string& host, const base::Deadline& deadline)
      : what_("resolve " + base::quoted(host)),
        deadline_(deadline),
        events_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!events_) {
      base::throw_errno(errno, ExitStatus::kOsError, what_ + ": create an epoll descriptor");
    }
  }
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;

  awaitable<std::vector<tcp::endpoint>> run(std::string host, std::uint16_t port,
                                            std::string name_servers) {
    open_channel();
    if (!name_servers.empty()) {
      check(::ares_set_servers_ports_csv(channel_.get(), name_servers.c_str()));
    }
    ares_addrinfo_hints hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    ::ares_getaddrinfo(channel_.get(), host.c_str(), nullptr, &hints, take_result, this);
    while (!status_) {
      check_watch();
      if (deadline_.expired()) throw Error(ExitStatus::kTryAgain, what_ + ": timed out");
      co_await loop::until_ready(events_.get(), POLLIN, next_try());
      process();
    }
    check(*status_);
    co_return endpoints(port);
  }

 private:
  struct FreeResult {
    void operator()(ares_addrinfo* result) const { ::ares_freeaddrinfo(result); }
  };
  struct DestroyChannel {
    void operator()(ares_channeldata* channel) const { ::ares_destroy(channel); }
  };

  static void take_result(void* lookup, int status, int /*timeouts*/, ares_addrinfo* result) {
    auto& self = *static_cast<Lookup*>(lookup);
    self.result_.reset(result);
    self.status_ = status;
  }

  static void change_interest(void* lookup, ares_socket_t fd, int readable, int writable) {
    const std::uint32_t events = (readable != 0 ? EPOLLIN : 0U) | (writable != 0 ? EPOLLOUT : 0U);
    static_cast<Lookup*>(lookup)->watch(fd, events);
  }

  // Called by c-ares, so it must not throw.
  void watch(int fd, std::uint32_t events) noexcept {
    const int set = events_.get();
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    int result = 0;
    if (events == 0) {
      result = ::epoll_ctl(set, EPOLL_CTL_DEL, fd, nullptr);
    } else {
      result = ::epoll_ctl(set, EPOLL_CTL_MOD, fd, &event);
      if (result != 0 && errno == ENOENT) result = ::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    }
    if (result != 0) watch_error_ = errno;
  }

  void check_watch() const {
    if (watch_error_ != 0) {
      base::throw_errno(watch_error_, ExitStatus::kOsError, what_ + ": watch a socket");
    }
  }

  void open_channel() {
    // Unlike all later calls, this one must not run on two threads at once.
    static const int initialised = ::ares_library_init(ARES_LIB_INIT_ALL);
    check(initialised);
    ares_options options{};
    options.timeout = static_cast<int>(kFirstTry.count());
    options.tries = kTries;
    std::array<char, 3> files_then_servers{'f', 'b', '\0'};
    options.lookups = files_then_servers.data();
    options.sock_state_cb = change_interest;
    options.sock_state_cb_data = this;
    ares_channel channel = nullptr;
    check(::ares_init_options(
        &channel, &options,
        ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB));
    channel_.reset(channel);
    ::ares_set_socket_functions(channel, &kSocketFunctions, nullptr);
  }

  void check(int status) const {
    if (status == ARES_SUCCESS) return;
    const bool ours = status == ARES_ENOMEM || status == ARES_ENOTINITIALIZED;
    throw Error(ours ? ExitStatus::kOsError : ExitStatus::kUnavailable,
                what_ + ": " + ::ares_strerror(status));
  }

  // c-ares's next timeout or the deadline, whichever is earlier.
  [[nodiscard]] base::Deadline next_try() const {
    timeval buffer{};
    const timeval* const timeout = ::ares_timeout(channel_.get(), nullptr, &buffer);
    if (timeout == nullptr) return deadline_;
    return deadline_.sooner(base::Deadline::after(std::chrono::seconds(timeout->tv_sec) +
                                                  std::chrono::microseconds(timeout->tv_usec)));
  }

  void process() {
    std::array<epoll_event, kMaxEvents> ready{};
    const int count = ::epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
    if (count < 0 && errno != EINTR) {
      base::throw_errno(errno, ExitStatus::kOsError, what_ + ": wait for a server");
    }
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = ready.at(static_cast<std::size_t>(i));
      const bool broken = (event.events & (EPOLLERR | EPOLLHUP)) != 0;
      const bool readable = broken || (event.events & EPOLLIN) != 0;
      const bool writable = broken || (event.events & EPOLLOUT) != 0;
      ::ares_process_fd(channel_.get(), readable ? event.data.fd : ARES_SOCKET_BAD,
                        writable ? event.data.fd : ARES_SOCKET_BAD);
    }
    // Handles expired timeouts, also if no socket was ready.
    ::ares_process_fd(channel_.get(), ARES_SOCKET_BAD, ARES_SOCKET_BAD);
  }

  [[nodiscard]] std::vector<tcp::endpoint> endpoints(std::uint16_t port) const {
    std::vector<tcp::endpoint> found;
    for (const ares_addrinfo_node* node = result_ ? result_->nodes : nullptr;
         node != nullptr && found.size() < kMaxAddresses; node = node->ai_next) {
      if (node->ai_family == AF_INET) {
        sockaddr_in address{};
        std::memcpy(&address, node->ai_addr, sizeof address);
        found.emplace_back(asio::ip::address_v4(ntohl(address.sin_addr.s_addr)), port);
      } else if (node->ai_family == AF_INET6) {
        sockaddr_in6 address{};
        std::memcpy(&address, node->ai_addr, sizeof address);
        asio::ip::address_v6::bytes_type bytes{};
        std::copy_n(std::begin(address.sin6_addr.s6_addr), bytes.size(), bytes.begin());
        found.emplace_back(asio::ip::address_v6(bytes, address.sin6_scope_id), port);
      }
    }
    if (found.empty()) throw Error(ExitStatus::kUnavailable, what_ + ": the name has no address");
    return found;
  }

  std::string what_;
  base::Deadline deadline_;
  UniqueFd events_;
  int watch_error_ = 0;
  std::optional<int> status_;
  std::unique_ptr<ares_addrinfo, FreeResult> result_;
  // Declared last: its destruction calls back into the members above.
  std::unique_ptr<ares_channeldata, DestroyChannel> channel_;
};

}  // namespace

std::optional<asio::ip::address> numeric_address(const std::string& host) {
  boost::system::error_code not_numeric;
  const asio::ip::address address = asio::ip::make_address(host, not_numeric);
  return not_numeric ? std::nullopt : std::optional(address);
}

bool is_loopback(const std::string& host) {
  const std::optional<asio::ip::address> address = numeric_address(host);
  return address && address->is_loopback();
}

awaitable<std::vector<tcp::endpoint>> resolve(std::string host, std::uint16_t port,
                                              base::Deadline deadline, std::string name_servers) {
  const std::optional<asio::ip::address> address =
      numeric_address(host == "localhost" ? "127.0.0.1" : host);
  std::vector<tcp::endpoint> found;
  if (address) {
    found.emplace_back(*address, port);
    co_return found;
  }
  Lookup lookup(host, deadline);
  found = co_await lookup.run(host, port, name_servers);
  co_return found;
}

}  // namespace fo::net
