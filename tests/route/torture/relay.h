// A relay of TCP connections to a server of this machine, which can break one in the middle of a
// stream of events, or hold up all of them as a network does that is partitioned.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "loop/acceptor.h"
#include "loop/adopt.h"
#include "loop/event.h"
#include "loop/spawn.h"
#include "net/connect.h"
#include "net/stream.h"
#include "support/ports.h"
#include "support/soon.h"

namespace fo::torture {

/// The loop must not run after it.
class Relay {
 public:
  /// A connection is reset, or it ends within an event.
  enum class Fault { kReset, kCut };

  explicit Relay(boost::asio::any_io_executor executor)
      : executor_(std::move(executor)),
        acceptor_(executor_, listener(port_.fd()), kWhat),
        healed_(executor_) {
    loop::spawn(executor_, accept());
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_.number(); }
  /// The port of the server, before the first connection.
  void lead_to(std::uint16_t server) { server_ = server; }

  /// Breaks the connection of the first answer that has `events` events, and calls `on_fault` then.
  void fail_next(Fault fault, std::uint64_t events, std::function<void()> on_fault) {
    fault_ = fault;
    events_ = events;
    on_fault_ = std::move(on_fault);
  }
  /// No fault follows, until the next call of fail_next().
  void disarm() { on_fault_ = {}; }
  [[nodiscard]] bool is_armed() const { return static_cast<bool>(on_fault_); }

  /// Until heal(), nothing passes in either direction, not even the end of a connection. What was
  /// sent meanwhile arrives then. New connections are accepted and silent, or with `drops_new`, the
  /// kernel drops what asks for one.
  void partition(bool drops_new) {
    is_partitioned_ = true;
    drops_new_ = drops_new;
    if (!drops_new) return;
    if (::listen(port_.fd(), 0) != 0) base::throw_errno(errno, kWhat);
    // It fills the backlog.
    filler_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    static_cast<void>(test::try_connect(filler_.get(), port()));
  }
  void heal() {
    is_partitioned_ = drops_new_ = false;
    filler_.reset();
    if (::listen(port_.fd(), SOMAXCONN) != 0) base::throw_errno(errno, kWhat);
    acceptor_.notify_room();
    healed_.notify();
  }

 private:
  // Processes that are started meanwhile must not inherit it: then a connection would not break
  // when it is closed here.
  using Socket = net::Stream::Socket;
  struct Link {
    Link(Socket from, Socket to) : client(std::move(from)), server(std::move(to)) {}
    net::Stream client;
    net::Stream server;
    /// Those of the present answer.
    std::uint64_t events = 0;
    /// The answer's last bytes, in which a mark may begin that the next piece continues.
    std::string tail;
  };
  using LinkPtr = std::shared_ptr<Link>;

  static constexpr const char* kWhat = "relay a connection";

  static base::UniqueFd listener(int fd) {
    if (::listen(fd, SOMAXCONN) != 0) base::throw_errno(errno, kWhat);
    return loop::duplicate(fd, kWhat);
  }

  boost::asio::awaitable<void> accept() {
    const std::function<bool()> is_full = [this] { return drops_new_; };
    for (;;) {
      base::UniqueFd client = co_await acceptor_.next(is_full);
      if (!client) co_return;
      loop::spawn(executor_, serve(std::move(client)));
    }
  }

  boost::asio::awaitable<void> serve(base::UniqueFd accepted) {
    LinkPtr link;
    co_await until_healed();
    try {
      Socket client(executor_);
      loop::adopt(client, std::move(accepted), kWhat, Socket::protocol_type(AF_INET, IPPROTO_TCP));
      const boost::asio::ip::tcp::endpoint server(boost::asio::ip::address_v4::loopback(), server_);
      std::vector<boost::asio::ip::tcp::endpoint> servers{server};
      Socket connected = co_await net::connect(std::move(servers), test::soon(), kWhat);
      link = std::make_shared<Link>(std::move(client), std::move(connected));
    } catch (const base::Error&) {
      co_return;
    }
    loop::spawn(executor_, send_requests(link));
    co_await send_answers(link);
  }

  boost::asio::awaitable<void> until_healed() {
    while (is_partitioned_) co_await healed_.wait();
  }

  boost::asio::awaitable<void> send_requests(LinkPtr link) {
    const Pass pass = [&link = *link](std::string_view piece) {
      link.events = 0;
      link.tail.clear();
      return piece.size();
    };
    co_await copy(link->client, link->server, pass);
  }

  boost::asio::awaitable<void> send_answers(LinkPtr link) {
    const Pass pass = [this, &link = *link](std::string_view piece) -> std::size_t {
      if (!must_break(link, piece)) return piece.size();
      if (fault_ == Fault::kCut) return piece.size() / 2;
      link.client.reset();
      return 0;
    };
    co_await copy(link->server, link->client, pass);
  }

  // Returns how many of the bytes to pass on; if not all, they are the last ones.
  using Pass = std::function<std::size_t(std::string_view piece)>;

  // Copies bytes until the end, and closes both streams.
  boost::asio::awaitable<void> copy(net::Stream& from, net::Stream& to, const Pass& pass) {
    std::array<char, 16384> space;
    boost::system::error_code error;
    for (bool goes_on = true; goes_on;) {
      const boost::asio::mutable_buffer all = boost::asio::buffer(space);
      const std::size_t count = co_await from.read_some(all, base::Deadline::never(), error);
      co_await until_healed();
      if (error) break;
      const std::size_t passed = pass({space.data(), count});
      const boost::asio::const_buffer piece(space.data(), passed);
      co_await to.write(piece, base::Deadline::never(), error);
      goes_on = !error && passed == count;
    }
    to.close();
    from.close();
  }

  // Counts the events in a piece of an answer; the answer's last event has no JSON.
  bool must_break(Link& link, std::string_view piece) {
    constexpr std::string_view kEvent = "data: {";
    constexpr std::string_view kLast = "data: [DONE]";
    const std::size_t old = link.tail.size();
    const std::string_view text = link.tail.append(piece);
    // The first place of a mark that ends in the piece.
    const auto first = [old](std::string_view mark) {
      return old - std::min(old, mark.size() - 1);
    };
    const bool is_last = text.find(kLast, first(kLast)) != text.npos;
    for (std::size_t at = text.find(kEvent, first(kEvent)); at != text.npos;
         at = text.find(kEvent, at + 1)) {
      ++link.events;
    }
    link.tail.erase(0, text.size() - std::min(text.size(), kLast.size() - 1));
    const bool breaks = is_armed() && !is_last && link.events >= events_;
    if (breaks) std::exchange(on_fault_, {})();
    return breaks;
  }

  boost::asio::any_io_executor executor_;
  test::ReservedPort port_;
  loop::Acceptor acceptor_;
  loop::Event healed_;
  bool is_partitioned_ = false;
  bool drops_new_ = false;
  base::UniqueFd filler_;
  std::uint16_t server_ = 0;
  Fault fault_ = Fault::kReset;
  std::uint64_t events_ = 0;
  /// Empty if no fault is to come.
  std::function<void()> on_fault_;
};

}  // namespace fo::torture
