#include "engine/publisher.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/http_framing.h"
#include "http/address.h"
#include "os/log.h"
#include "os/unix_socket.h"

// What the framing must see is read into one buffer and sent on: for pieces of the size of a token
// that costs less than splice(2) does. Bodies and opaque streams are spliced while they fill that
// buffer. What the far side does not take is held until it does, and nothing is read meanwhile. A
// client costs one descriptor, two once it has said something, and a pipe's two while it is
// spliced.
namespace fo::engine {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::posix::stream_descriptor;
using base::Error;
using base::ExitStatus;
using base::quoted;
using base::UniqueFd;
using boost::system::error_code;
using Endpoint = asio::generic::stream_protocol::endpoint;
using Wait = asio::posix::descriptor_base;

constexpr std::size_t kMostConnections = 4096;
constexpr std::size_t kMostIdlePipes = 16;
constexpr base::Duration kConnectTimeout = std::chrono::seconds(5);
// For a client to close a connection that the engine has closed.
constexpr base::Duration kHalfOpenTimeout = std::chrono::seconds(60);

Endpoint tcp_endpoint(const std::string& text) {
  const http::Address address = http::parse_address(text);
  return asio::ip::tcp::endpoint(asio::ip::make_address(address.host), address.port);
}

Endpoint target_endpoint(const std::string& text) {
  if (text.find('/') == std::string::npos) return tcp_endpoint(text);
  os::check_socket_path(text);
  return asio::local::stream_protocol::endpoint(text);
}

void set_option(int fd, int level, int option) {
  const int on = 1;
  static_cast<void>(::setsockopt(fd, level, option, &on, sizeof on));
}

UniqueFd listen_on(const Endpoint& endpoint, const std::string& address) {
  const auto check = [&](bool done) {
    if (done) return;
    const int err = errno;
    const bool denied = err == EACCES || err == EPERM;
    base::throw_errno(err, denied ? ExitStatus::kNotPermitted : ExitStatus::kCannotCreate,
                      "publish on " + quoted(address));
  };
  UniqueFd fd(
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  check(fd.valid());
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR);
  check(::bind(fd.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0);
  check(::listen(fd.get(), SOMAXCONN) == 0);
  return fd;
}

// To be watched by the loop.
void watch(stream_descriptor& descriptor, UniqueFd fd) {
  error_code error;
  descriptor.assign(fd.get(), error);
  if (error) throw Error(ExitStatus::kOsError, "watch a descriptor", std::error_code(error));
  static_cast<void>(fd.release());
}

void close(stream_descriptor& descriptor, bool reset) {
  if (!descriptor.is_open()) return;
  const linger at_once{1, 0};
  if (reset) {
    static_cast<void>(
        ::setsockopt(descriptor.native_handle(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
  }
  error_code ignored;
  descriptor.close(ignored);
}

// False once it was closed or taken away.
awaitable<bool> ready(stream_descriptor& descriptor, Wait::wait_type what) {
  error_code error;
  co_await descriptor.async_wait(what, asio::redirect_error(asio::use_awaitable, error));
  co_return !error && descriptor.is_open();
}

bool is_passing(int err) { return err == EAGAIN || err == EINTR; }

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

struct Connection {
  Connection(const asio::any_io_executor& executor, UniqueFd accepted)
      : client(executor), engine(executor), limit(executor) {
    set_option(accepted.get(), IPPROTO_TCP, TCP_NODELAY);
    set_option(accepted.get(), SOL_SOCKET, SO_KEEPALIVE);  // a client's machine may vanish
    watch(client, std::move(accepted));
  }

  [[nodiscard]] bool is_busy() const { return held > 0 || !framing.is_between_requests(); }

  stream_descriptor client;
  stream_descriptor engine;
  HttpFraming framing;
  /// Bytes that were read from one side and not yet taken by the other.
  std::size_t held = 0;
  int open_directions = 2;
  bool engine_reset = false;
  /// For what must not take for ever.
  asio::steady_timer limit;
};

}  // namespace

struct Publisher::State : std::enable_shared_from_this<State> {
  using Ptr = std::shared_ptr<State>;
  using ConnectionPtr = std::shared_ptr<Connection>;

  State(asio::any_io_executor on, std::string at, const std::string& to)
      : executor(std::move(on)),
        address(std::move(at)),
        target_name(to),
        endpoint(tcp_endpoint(address)),
        target(target_endpoint(to)),
        listener(executor),
        room(executor),
        settled(executor) {}

  asio::any_io_executor executor;
  std::string address;
  std::string target_name;
  Endpoint endpoint;
  Endpoint target;
  stream_descriptor listener;
  std::set<ConnectionPtr> connections;
  /// Clients that were taken away from the engine.
  std::vector<UniqueFd> kept;
  bool is_draining = false;
  /// An accept loop ends when it is not the latest.
  unsigned accept_loop = 0;
  /// Cancelled when a connection has gone.
  asio::steady_timer room;
  /// Cancelled when the last one has gone.
  asio::steady_timer settled;
  std::chrono::steady_clock::time_point last_complaint{};
  std::vector<Pipe> idle_pipes;
  std::array<char, 65536> buffer{};

  static awaitable<void> accept(Ptr self, unsigned loop);
  static awaitable<void> serve(Ptr self, ConnectionPtr connection);
  static awaitable<bool> connect(Ptr self, ConnectionPtr connection);
  static awaitable<void> pass_on(Ptr self, ConnectionPtr connection, Side side);

  void begin();
  void add(UniqueFd client);
  ssize_t read(Connection& connection, Side side, bool bulk, Pipe& pipe);
  bool take_pipe(Pipe& pipe);
  void give_back(Pipe pipe);
  void limit(const ConnectionPtr& connection, base::Duration duration);
  void settle(const ConnectionPtr& connection);
  void end_direction(const ConnectionPtr& connection, Side side);
  void drop(const ConnectionPtr& connection, bool reset);
  void complain(const std::string& what, int err);
};

// At most one line a second.
void Publisher::State::complain(const std::string& what, int err) {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_complaint < std::chrono::seconds(1)) return;
  last_complaint = now;
  os::log(os::LogLevel::kWarning, "{}: {}", what, std::generic_category().message(err));
}

void Publisher::State::begin() {
  is_draining = false;
  asio::co_spawn(executor, accept(shared_from_this(), ++accept_loop), asio::detached);
  for (UniqueFd& client : std::exchange(kept, {})) add(std::move(client));
}

awaitable<void> Publisher::State::accept(Ptr self, unsigned loop) {
  while (loop == self->accept_loop) {
    const bool open = co_await ready(self->listener, Wait::wait_read);
    if (!open) co_return;
    while (loop == self->accept_loop) {
      int err = 0;
      if (self->connections.size() < kMostConnections) {
        UniqueFd client(::accept4(self->listener.native_handle(), nullptr, nullptr,
                                  SOCK_CLOEXEC | SOCK_NONBLOCK));
        err = client ? 0 : errno;
        if (client) self->add(std::move(client));
        if (err == EAGAIN) break;
        if (err == 0 || err == EINTR || err == ECONNABORTED) continue;
      }
      // Out of places, descriptors or memory: goes on when a connection has gone, or in a while.
      self->complain("accept a client on " + quoted(self->address), err == 0 ? EUSERS : err);
      self->room.expires_after(std::chrono::milliseconds(250));
      error_code ignored;
      co_await self->room.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
  }
}

void Publisher::State::add(UniqueFd client) {
  try {
    const auto connection = std::make_shared<Connection>(executor, std::move(client));
    connections.insert(connection);
    asio::co_spawn(executor, serve(shared_from_this(), connection), asio::detached);
  } catch (const Error& error) {
    os::log(os::LogLevel::kWarning, "{}", error.what());
  }
}

// The engine is connected when the client begins to speak: one that is idle costs it nothing.
awaitable<void> Publisher::State::serve(Ptr self, ConnectionPtr connection) {
  const bool open = co_await ready(connection->client, Wait::wait_read);
  if (!open) co_return;
  char first = 0;
  if (::recv(connection->client.native_handle(), &first, 1, MSG_PEEK) == 0) {
    co_return self->drop(connection, false);
  }
  const bool connected = co_await connect(self, connection);
  if (!connection->client.is_open()) co_return;
  if (!connected) co_return self->drop(connection, true);
  asio::co_spawn(self->executor, pass_on(self, connection, Side::kEngine), asio::detached);
  co_await pass_on(self, connection, Side::kClient);
}

awaitable<bool> Publisher::State::connect(Ptr self, ConnectionPtr connection) {
  const std::string what = "connect to engine " + quoted(self->target_name);
  const Endpoint& target = self->target;
  const int family = target.protocol().family();
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    self->complain(what, errno);
    co_return false;
  }
  if (family != AF_UNIX) set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY);
  stream_descriptor& engine = connection->engine;
  error_code error;
  engine.assign(fd.get(), error);
  if (error) {
    self->complain(what, error.value());
    co_return false;
  }
  static_cast<void>(fd.release());
  self->limit(connection, kConnectTimeout);
  const auto size = static_cast<socklen_t>(target.size());
  int err = EINPROGRESS;
  while (engine.is_open()) {
    err = ::connect(engine.native_handle(), target.data(), size) == 0 ? 0 : errno;
    // Asked again at once: a connection of the loopback is there by then, and one that was never
    // waited for to be writable is not woken for that later.
    if (err == EINPROGRESS || err == EINTR) continue;
    if (err == EALREADY) {
      co_await ready(engine, Wait::wait_write);
    } else if (err == EAGAIN) {  // the queue of a Unix socket is full: nothing to wait for
      asio::steady_timer pause(self->executor, std::chrono::milliseconds(5));
      co_await pause.async_wait(asio::use_awaitable);
    } else {
      break;
    }
  }
  if (err == EISCONN) err = 0;
  connection->limit.cancel();
  if (err != 0 && !self->is_draining) self->complain(what, err == EALREADY ? ETIMEDOUT : err);
  co_return err == 0;
}

bool Publisher::State::take_pipe(Pipe& pipe) {
  if (!idle_pipes.empty()) {
    pipe = std::move(idle_pipes.back());
    idle_pipes.pop_back();
    return true;
  }
  int ends[2];
  if (::pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) return false;
  pipe = {UniqueFd(ends[0]), UniqueFd(ends[1])};
  return true;
}

// An empty one.
void Publisher::State::give_back(Pipe pipe) {
  if (pipe.reader && idle_pipes.size() < kMostIdlePipes) idle_pipes.push_back(std::move(pipe));
}

// One read of what `side` has to say: into `pipe`, which is then valid, or into the buffer.
ssize_t Publisher::State::read(Connection& connection, Side side, bool bulk, Pipe& pipe) {
  HttpFraming& framing = connection.framing;
  const int fd = (side == Side::kClient ? connection.client : connection.engine).native_handle();
  const std::uint64_t unseen = framing.unseen(side);
  if (bulk && unseen >= buffer.size() && take_pipe(pipe)) {
    const std::size_t most = std::min<std::uint64_t>(unseen, std::size_t{1} << 20);
    const ssize_t got =
        ::splice(fd, nullptr, pipe.writer.get(), nullptr, most, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    if (got > 0) framing.pass(side, static_cast<std::uint64_t>(got));
    return got;
  }
  // What is taken from a draining client must not reach into its next request.
  const bool one_only = is_draining && side == Side::kClient;
  ssize_t got = ::recv(fd, buffer.data(), buffer.size(), one_only ? MSG_PEEK : 0);
  if (got <= 0) return got;
  std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
  do {
    bytes.remove_prefix(framing.see(side, bytes));
  } while (!one_only && !bytes.empty());
  if (one_only) got = ::recv(fd, buffer.data(), static_cast<std::size_t>(got) - bytes.size(), 0);
  return got;
}

awaitable<void> Publisher::State::pass_on(Ptr self, ConnectionPtr connection, Side side) {
  const bool is_request = side == Side::kClient;
  stream_descriptor& from = is_request ? connection->client : connection->engine;
  stream_descriptor& to = is_request ? connection->engine : connection->client;
  std::string rest;
  bool bulk = false;
  for (;;) {
    const bool open = co_await ready(from, Wait::wait_read);
    if (!open) co_return;
    // A next request stays with the client; the response to the last one settles the connection.
    if (is_request && self->is_draining && !connection->framing.is_in_message(side)) co_return;
    Pipe pipe;
    const ssize_t got = self->read(*connection, side, bulk, pipe);
    if (got < 0 && is_passing(errno)) {
      bulk = false;
      self->give_back(std::move(pipe));
      continue;
    }
    if (got < 0) co_return self->drop(connection, true);
    if (got == 0) {
      ::shutdown(to.native_handle(), SHUT_WR);
      co_return self->end_direction(connection, side);
    }
    bulk = static_cast<std::size_t>(got) >= self->buffer.size() / 2;
    auto left = static_cast<std::size_t>(got);
    connection->held += left;
    const char* data = self->buffer.data();
    while (left > 0) {
      const ssize_t sent = pipe.reader ? ::splice(pipe.reader.get(), nullptr, to.native_handle(),
                                                  nullptr, left, SPLICE_F_NONBLOCK | SPLICE_F_MOVE)
                                       : ::send(to.native_handle(), data, left, MSG_NOSIGNAL);
      if (sent > 0) {
        left -= static_cast<std::size_t>(sent);
        connection->held -= static_cast<std::size_t>(sent);
        data += sent;
        continue;
      }
      if (sent < 0 && !is_passing(errno)) {
        if (!is_request) co_return self->drop(connection, true);
        // What the engine said before it closed is still to be read.
        connection->held -= left;
        connection->engine_reset = true;
        co_return self->end_direction(connection, side);
      }
      if (!pipe.reader && data == self->buffer.data() + (got - static_cast<ssize_t>(left))) {
        rest.assign(data, left);  // the buffer is everybody's
        data = rest.data();
      }
      const bool writable = co_await ready(to, Wait::wait_write);
      if (!writable) co_return;
    }
    rest = {};
    self->give_back(std::move(pipe));
    if (self->is_draining) self->settle(connection);
  }
}

// One side has said its last.
void Publisher::State::end_direction(const ConnectionPtr& connection, Side side) {
  const bool is_last = --connection->open_directions == 0;
  if (side == Side::kClient) {
    if (is_last) drop(connection, connection->engine_reset);
    if (!is_last && is_draining) settle(connection);
    return;
  }
  // Nobody answers any more: only a client that still speaks may stay, for a while.
  if (is_last || is_draining || !connection->framing.is_in_message(Side::kClient)) {
    drop(connection, connection->engine_reset);
  } else {
    limit(connection, kHalfOpenTimeout);
  }
}

void Publisher::State::limit(const ConnectionPtr& connection, base::Duration duration) {
  connection->limit.expires_after(duration);
  connection->limit.async_wait(
      [self = weak_from_this(), weak = std::weak_ptr(connection)](const error_code& stopped) {
        const auto state = self.lock();
        const auto late = weak.lock();
        if (!stopped && state && late) state->drop(late, true);
      });
}

// Takes the connection away from the engine if it is between two requests.
void Publisher::State::settle(const ConnectionPtr& connection) {
  if (connection->is_busy() || !connection->client.is_open()) return;
  kept.emplace_back(connection->client.release());
  drop(connection, false);
}

void Publisher::State::drop(const ConnectionPtr& connection, bool reset) {
  close(connection->client, reset);
  close(connection->engine, reset);
  connection->limit.cancel();
  connections.erase(connection);
  room.cancel();
  if (connections.empty()) settled.cancel();
}

Publisher::Publisher(asio::any_io_executor executor, std::string address, std::string target)
    : state_(std::make_shared<State>(std::move(executor), std::move(address), target)) {}

Publisher::~Publisher() {
  ++state_->accept_loop;
  close(state_->listener, false);
  state_->kept.clear();
  state_->room.cancel();
  for (const auto& connection : std::set(state_->connections)) {
    state_->drop(connection, connection->is_busy());
  }
}

void Publisher::start(PublishedSockets inherited) {
  UniqueFd listener = std::move(inherited.listener);
  if (!listener) listener = listen_on(state_->endpoint, state_->address);
  watch(state_->listener, std::move(listener));
  state_->kept = std::move(inherited.clients);
  state_->begin();
}

awaitable<bool> Publisher::drain(base::Deadline deadline) {
  // Held for the case that the publisher is destroyed meanwhile.
  const std::shared_ptr<State> state = state_;
  state->is_draining = true;
  ++state->accept_loop;
  error_code ignored;
  state->listener.cancel(ignored);
  state->room.cancel();
  for (const auto& connection : std::set(state->connections)) state->settle(connection);
  if (!state->connections.empty()) {
    state->settled.expires_at(deadline.at().value_or(asio::steady_timer::time_point::max()));
    co_await state->settled.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  const bool finished = state->connections.empty();
  for (const auto& connection : std::set(state->connections)) state->drop(connection, true);
  co_return finished;
}

PublishedSockets Publisher::take() {
  PublishedSockets left;
  left.listener.reset(state_->listener.is_open() ? state_->listener.release() : -1);
  for (UniqueFd& client : std::exchange(state_->kept, {})) {
    char first = 0;
    const bool gone = ::recv(client.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    if (!gone) left.clients.push_back(std::move(client));
  }
  return left;
}

void Publisher::resume() { state_->begin(); }

std::size_t Publisher::connections() const {
  return state_->connections.size() + state_->kept.size();
}

std::size_t Publisher::busy() const {
  return static_cast<std::size_t>(
      std::count_if(state_->connections.begin(), state_->connections.end(),
                    [](const auto& connection) { return connection->is_busy(); }));
}

std::uint16_t Publisher::port() const {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  auto* generic = reinterpret_cast<sockaddr*>(&name);
  if (!state_->listener.is_open() ||
      ::getsockname(state_->listener.native_handle(), generic, &size) != 0) {
    return 0;
  }
  // The port is at the same place for both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&name)->sin_port);
}

}  // namespace fo::engine
