#include "engine/publish/publisher.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <list>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/publish/http_framing.h"
#include "engine/publish/stream_socket.h"
#include "http/message.h"
#include "loop/acceptor.h"
#include "loop/adopt.h"
#include "loop/alarm.h"
#include "loop/event.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "os/log.h"
#include "os/log_limit.h"

// Bytes that the framing must see are read into one shared buffer and sent on: for pieces of the
// size of a token that costs less than splice(2). Bodies and opaque streams are spliced while they
// fill that buffer. Bytes that the destination does not accept are held, and nothing is read
// meanwhile. A client costs one descriptor, two once it has sent something, and two more for a pipe
// while it is spliced.
namespace fo::engine {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Error;
using base::UniqueFd;

constexpr std::size_t kBufferBytes = std::size_t{64} * 1024;
// A read of at least this size is followed by a splice, if the framing need not see as many bytes
// as the buffer holds.
constexpr ssize_t kBulk = kBufferBytes / 2;
constexpr std::size_t kMaxSplicedBytes = std::size_t{1024} * 1024;
// The interval of attempts to connect while descriptors, memory or ports are exhausted: there is no
// event when another process releases some.
constexpr base::Duration kConnectRetryInterval = std::chrono::milliseconds(100);
constexpr char kWatch[] = "watch a socket";

bool is_retryable(int err) { return err == EAGAIN || err == EINTR; }

// Whether descriptors, memory or ports are exhausted, which is transient.
bool is_exhausted(int err) {
  return err == EADDRNOTAVAIL || base::is_exhausted({err, std::generic_category()});
}

struct Pipe {
  // False if descriptors are exhausted.
  bool open() {
    int ends[2];
    if (!reader && ::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0) {
      reader.reset(ends[0]);
      writer.reset(ends[1]);
    }
    return reader.valid();
  }
  UniqueFd reader;
  UniqueFd writer;
};

struct Connection;
using ConnectionPtr = std::shared_ptr<Connection>;
using Connections = std::list<ConnectionPtr>;

struct Connection {
  Connection(const asio::any_io_executor& executor, UniqueFd accepted,
             const HttpFraming::Judge& judge)
      : client(executor), engine(executor), framing(judge), alarm(executor) {
    set_option(accepted.get(), IPPROTO_TCP, TCP_NODELAY);
    set_option(accepted.get(), SOL_SOCKET, SO_KEEPALIVE);  // a client's machine may vanish
    loop::adopt(client, std::move(accepted), kWatch);
  }

  [[nodiscard]] bool is_busy() const {
    return !engine_ended && (is_unread || held > 0 || !framing.is_between_requests());
  }

  /// True if the client does not wait for an answer, and none is being sent to it.
  [[nodiscard]] bool is_expendable() const {
    return engine_ended || (!is_unread && held == 0 && !framing.awaits_answer());
  }

  /// The part of the client's new and withheld bytes that may be forwarded. `joined` stores it if
  /// it includes withheld bytes.
  std::string_view passable(std::string_view received, std::string& joined) {
    const std::size_t kept = framing.withheld();
    if (withheld.empty() && kept == 0) return received;
    withheld += received;
    joined = withheld.substr(0, withheld.size() - kept);
    withheld.erase(0, joined.size());
    if (framing.is_over()) withheld = {};
    return joined;
  }

  WatchedSocket& of(Side side) { return side == Side::kClient ? client : engine; }

  WatchedSocket client;
  WatchedSocket engine;
  HttpFraming framing;
  /// The beginning of an incomplete head.
  std::string withheld;
  /// The number of bytes read from one side and not yet written to the other.
  std::size_t held = 0;
  int open_directions = 2;
  /// True if the client has begun a request of which nothing was read yet.
  bool is_unread = false;
  bool engine_reset = false;
  /// True if the refusal of a request was sent to the client.
  bool is_refused = false;
  /// True if the engine has ended its stream, and all of it was forwarded.
  bool engine_ended = false;
  /// The list that contains the connection, and its place there; nullptr after it was dropped.
  Connections* list = nullptr;
  Connections::iterator place;
  /// Ends operations with a time limit.
  loop::Alarm alarm;
};

}  // namespace

struct Publisher::State : std::enable_shared_from_this<State> {
  using Ptr = std::shared_ptr<State>;

  State(asio::any_io_executor on, std::string at, const std::string& to, PublisherLimits within,
        HttpFraming::Judge by)
      : executor(std::move(on)),
        address(std::move(at)),
        target_name(to),
        endpoint(tcp_endpoint(address)),
        target(stream_endpoint(to)),
        limits(within),
        judge(std::move(by)),
        settled(executor) {}

  asio::any_io_executor executor;
  std::string address;
  std::string target_name;
  StreamEndpoint endpoint;
  StreamEndpoint target;
  PublisherLimits limits;
  HttpFraming::Judge judge;
  /// The listening socket while no client is accepted.
  UniqueFd listener;
  /// Owns the listening socket while clients are accepted.
  std::shared_ptr<loop::Acceptor> acceptor;
  /// Connections by is_expendable(); those without activity for longest are first.
  Connections idle;
  Connections busy;
  /// Clients that were detached from the engine.
  std::vector<UniqueFd> kept;
  bool is_draining = false;
  Successor successor = Successor::kFollows;
  /// The number of connections that wait for resources to connect to the engine; no client is
  /// accepted meanwhile.
  std::size_t starved = 0;
  /// The number of connections that were cut at the end of a drain.
  std::size_t cut = 0;
  /// Notified when the last connection has ended, or a drain's deadline has passed.
  loop::Event settled;
  os::LogLimit log_limit;
  std::array<char, kBufferBytes> buffer{};

  static awaitable<void> accept(Ptr self, std::shared_ptr<loop::Acceptor> clients);
  static awaitable<void> serve(Ptr self, ConnectionPtr connection);
  static awaitable<bool> connect(Ptr self, ConnectionPtr connection);
  static awaitable<void> pass_on(Ptr self, ConnectionPtr connection, Side side);
  static awaitable<void> discard_input(Ptr self, ConnectionPtr connection);

  void begin();
  void stop(Successor follows);
  void stop_accepting();
  [[nodiscard]] bool is_full();
  void notify_room() {
    if (acceptor) acceptor->notify_room();
  }
  void add(UniqueFd client);
  [[nodiscard]] std::size_t count() const { return idle.size() + busy.size(); }
  [[nodiscard]] Connections all() const;
  void sort(const ConnectionPtr& connection);
  ssize_t read(Connection& connection, Side side);
  static ssize_t splice(Connection& connection, Side side, const Pipe& pipe);
  void limit(const ConnectionPtr& connection, base::Duration duration, bool reset);
  void settle(const ConnectionPtr& connection);
  void answer_refusal(const ConnectionPtr& connection);
  void end_direction(const ConnectionPtr& connection, Side side);
  void drop(const ConnectionPtr& connection, bool reset);
  void discard_unread(int client);
  void log_failure(const std::string& what, int err);
};

// The log is limited, because clients can cause these errors at any rate.
void Publisher::State::log_failure(const std::string& what, int err) {
  log_limit.log(os::LogLevel::kWarning, what, what + ": " + std::generic_category().message(err));
}

void Publisher::State::begin() {
  is_draining = false;
  acceptor = std::make_shared<loop::Acceptor>(executor, std::move(listener),
                                              "accept a client on " + base::quoted(address));
  loop::spawn(executor, accept(shared_from_this(), acceptor));
  for (UniqueFd& client : std::exchange(kept, {})) add(std::move(client));
}

void Publisher::State::stop(Successor follows) {
  is_draining = true;
  successor = follows;
  stop_accepting();
  if (successor == Successor::kNone) {
    listener.reset();
    for (const UniqueFd& client : std::exchange(kept, {})) discard_unread(client.get());
    // Clients that have sent a request before the stop get their answer.
    for (const auto& connection : all()) {
      char first = 0;
      const int client = connection->client.native_handle();
      const bool has_sent = ::recv(client, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
      if (has_sent && !connection->is_busy()) connection->is_unread = true;
      sort(connection);
    }
  }
  for (const auto& connection : all()) settle(connection);
}

void Publisher::State::stop_accepting() {
  if (const auto clients = std::exchange(acceptor, nullptr)) listener = clients->release();
}

bool Publisher::State::is_full() {
  if (starved > 0) return true;
  const bool has_place = count() < limits.connections || !idle.empty();
  if (!has_place) log_failure("accept a client on " + base::quoted(address), EUSERS);
  return !has_place;
}

awaitable<void> Publisher::State::accept(Ptr self, std::shared_ptr<loop::Acceptor> clients) {
  const std::function<bool()> is_full = [self] { return self->is_full(); };
  for (;;) {
    UniqueFd client = co_await clients->next(is_full);
    if (!client) co_return;
    self->add(std::move(client));
    if (self->count() <= self->limits.connections) continue;
    self->log_failure("keep an idle client on " + base::quoted(self->address), EUSERS);
    const ConnectionPtr longest = self->idle.front();
    self->drop(longest, false);
  }
}

void Publisher::State::add(UniqueFd client) {
  try {
    const auto connection = std::make_shared<Connection>(executor, std::move(client), judge);
    connection->list = &idle;
    connection->place = idle.insert(idle.end(), connection);
    loop::spawn(executor, serve(shared_from_this(), connection));
  } catch (const Error& error) {
    log_limit.log(os::LogLevel::kWarning, error.what(), error.what());
  }
}

Connections Publisher::State::all() const {
  Connections both = idle;
  both.insert(both.end(), busy.begin(), busy.end());
  return both;
}

// Moves a connection to the end of its list. Must be called after any activity of the connection.
void Publisher::State::sort(const ConnectionPtr& connection) {
  Connections& list = connection->is_expendable() ? idle : busy;
  if (connection->list == nullptr) return;
  list.splice(list.end(), *connection->list, connection->place);
  connection->list = &list;
  if (&list == &idle && count() >= limits.connections) notify_room();
}

// The engine is connected only when the client sends its first bytes, so idle clients cost it
// nothing.
awaitable<void> Publisher::State::serve(Ptr self, ConnectionPtr connection) {
  const bool open = co_await wait_until(connection->client, WatchedSocket::wait_read);
  if (!open) co_return;
  char first = 0;
  if (::recv(connection->client.native_handle(), &first, 1, MSG_PEEK) == 0) {
    co_return self->drop(connection, false);
  }
  connection->is_unread = true;
  self->sort(connection);
  const bool connected = co_await connect(self, connection);
  if (!connection->client.is_open()) co_return;
  if (!connected) co_return self->drop(connection, true);
  loop::spawn(self->executor, pass_on(self, connection, Side::kEngine));
  co_await pass_on(self, connection, Side::kClient);
}

awaitable<bool> Publisher::State::connect(Ptr self, ConnectionPtr connection) {
  self->limit(connection, self->limits.connect, true);
  int err = 0;
  for (;;) {
    try {
      loop::adopt(connection->engine, make_socket(self->target), kWatch);
      err = co_await engine::connect(connection->engine, self->target);
    } catch (const Error& error) {
      err = error.code().value();
    }
    if (err != 0 && !self->is_draining) {
      self->log_failure("connect to engine " + base::quoted(self->target_name), err);
    }
    if (!is_exhausted(err) || !connection->client.is_open()) break;
    close(connection->engine, false);
    ++self->starved;
    co_await loop::pause_for(kConnectRetryInterval);
    if (--self->starved == 0) self->notify_room();
    if (!connection->client.is_open()) break;
  }
  connection->alarm.cancel();
  co_return err == 0;
}

// Reads once from `side` into the buffer.
ssize_t Publisher::State::read(Connection& connection, Side side) {
  const int fd = connection.of(side).native_handle();
  // A read from a draining client must not include bytes of its next request.
  const bool one_only = is_draining && side == Side::kClient;
  const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), one_only ? MSG_PEEK : 0);
  if (got <= 0) return got;
  std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
  do {
    bytes.remove_prefix(connection.framing.see(side, bytes));
  } while (!one_only && !bytes.empty());
  if (!one_only) return got;
  return ::recv(fd, buffer.data(), static_cast<std::size_t>(got) - bytes.size(), 0);
}

// Splices bytes that the framing need not see into `pipe`, which is empty.
ssize_t Publisher::State::splice(Connection& connection, Side side, const Pipe& pipe) {
  const std::size_t max_bytes =
      std::min<std::uint64_t>(connection.framing.unseen(side), kMaxSplicedBytes);
  const ssize_t got = ::splice(connection.of(side).native_handle(), nullptr, pipe.writer.get(),
                               nullptr, max_bytes, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
  if (got > 0) connection.framing.pass(side, static_cast<std::uint64_t>(got));
  return got;
}

awaitable<void> Publisher::State::pass_on(Ptr self, ConnectionPtr connection, Side side) {
  const bool is_request = side == Side::kClient;
  WatchedSocket& from = connection->of(side);
  WatchedSocket& to = connection->of(is_request ? Side::kEngine : Side::kClient);
  const HttpFraming& framing = connection->framing;
  bool is_bulk = false;
  Pipe pipe;
  std::string rest;
  for (;;) {
    const bool open = co_await wait_until(from, WatchedSocket::wait_read);
    if (!open) co_return;
    // The client keeps its next request; the response to the last one settles the connection.
    const bool begun = framing.is_in_message(side) || connection->is_unread;
    if (is_request && self->is_draining && !begun) co_return;
    const bool splices = is_bulk && framing.unseen(side) >= self->buffer.size() && pipe.open();
    if (!splices) pipe = {};
    const ssize_t got =
        splices ? self->splice(*connection, side, pipe) : self->read(*connection, side);
    is_bulk = got >= kBulk;
    if (got < 0 && is_retryable(errno)) continue;
    if (got < 0) co_return self->drop(connection, true);
    if (got == 0) {
      ::shutdown(to.native_handle(), SHUT_WR);
      co_return self->end_direction(connection, side);
    }
    std::string_view passed(self->buffer.data(), static_cast<std::size_t>(got));
    if (is_request && !splices) passed = connection->passable(passed, rest);
    const char* data = passed.data();
    std::size_t left = passed.size();
    connection->held += left;
    if (is_request) connection->is_unread = false;
    self->sort(connection);
    while (left > 0) {
      const ssize_t sent = splices ? ::splice(pipe.reader.get(), nullptr, to.native_handle(),
                                              nullptr, left, SPLICE_F_NONBLOCK | SPLICE_F_MOVE)
                                   : ::send(to.native_handle(), data, left, MSG_NOSIGNAL);
      if (sent > 0) {
        left -= static_cast<std::size_t>(sent);
        connection->held -= static_cast<std::size_t>(sent);
        data += sent;
      } else if (is_retryable(errno)) {
        if (!splices && rest.empty()) {  // the buffer is shared
          rest.assign(data, left);
          data = rest.data();
        }
        const bool writable = co_await wait_until(to, WatchedSocket::wait_write);
        if (!writable) co_return;
      } else if (is_request) {
        // The engine's answer before it closed must still be read.
        connection->held -= left;
        connection->engine_reset = true;
        co_return self->end_direction(connection, side);
      } else {
        co_return self->drop(connection, true);
      }
    }
    rest = {};
    self->sort(connection);
    if (self->is_draining) self->settle(connection);
    if (framing.refusal()) self->answer_refusal(connection);
    if (is_request && framing.refusal()) co_return co_await discard_input(self, connection);
  }
}

// Answers in place of the engine, once the engine has answered the earlier requests.
void Publisher::State::answer_refusal(const ConnectionPtr& connection) {
  const bool is_due = connection->held == 0 && connection->framing.is_answered();
  if (!is_due || !connection->client.is_open() || std::exchange(connection->is_refused, true)) {
    return;
  }
  const int status = *connection->framing.refusal();
  const bool is_control = status == 403;
  log_limit.log(os::LogLevel::kWarning, std::to_string(status),
                "refuse a request on " + base::quoted(address) +
                    (is_control ? ": its path controls the engine" : ": it is malformed"));
  const std::string body =
      http::error_response(
          status, is_control ? "this path is for the engine's operator" : "not an HTTP/1.1 request")
          .body;
  const std::string answer =
      std::string("HTTP/1.1 ") + (is_control ? "403 Forbidden" : "400 Bad Request") +
      "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\nConnection: close\r\n\r\n" + body;
  // If the client has not read earlier answers, this one is not sent.
  ::send(connection->client.native_handle(), answer.data(), answer.size(),
         MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(connection->client.native_handle(), SHUT_WR);
  close(connection->engine, false);
  limit(connection, limits.refusal, false);
}

// Discards the client's bytes until it has read everything: closing with unread bytes would discard
// the answer.
awaitable<void> Publisher::State::discard_input(Ptr self, ConnectionPtr connection) {
  for (;;) {
    const bool open = co_await wait_until(connection->client, WatchedSocket::wait_read);
    if (!open) co_return;
    const int client = connection->client.native_handle();
    const ssize_t got = ::recv(client, self->buffer.data(), self->buffer.size(), 0);
    if (got < 0 && is_retryable(errno)) continue;
    if (got > 0) continue;
    // If the refusal was not sent yet, answers to earlier requests are on their way.
    if (got < 0 || connection->is_refused) self->drop(connection, got < 0);
    co_return;
  }
}

// Handles the end of the stream of one side.
void Publisher::State::end_direction(const ConnectionPtr& connection, Side side) {
  const bool is_last = --connection->open_directions == 0;
  if (side == Side::kClient) {
    if (is_last) drop(connection, connection->engine_reset);
    if (!is_last && is_draining) settle(connection);
    return;
  }
  connection->engine_ended = true;
  sort(connection);
  // The engine has ended: only a client that is still sending may stay, for a limited time.
  if (is_last || is_draining || !connection->framing.is_in_message(Side::kClient)) {
    drop(connection, connection->engine_reset);
  } else {
    // The end is without a reset, because the kernel may still have to send some of the answer.
    limit(connection, limits.half_open, false);
  }
}

void Publisher::State::limit(const ConnectionPtr& connection, base::Duration duration, bool reset) {
  connection->alarm.set(base::Deadline::after(duration),
                        [self = weak_from_this(), late = std::weak_ptr(connection), reset] {
                          if (const auto state = self.lock()) state->drop(late.lock(), reset);
                        });
}

// Detaches the connection from the engine if it is between two requests.
void Publisher::State::settle(const ConnectionPtr& connection) {
  const bool follows = successor == Successor::kFollows;
  // The successor handles a request of which nothing was read.
  const bool is_busy = connection->is_busy() && !(follows && connection->is_unread);
  if (is_busy || !connection->client.is_open()) return;
  if (follows && !connection->engine_ended) kept.emplace_back(connection->client.release());
  drop(connection, false);
}

void Publisher::State::drop(const ConnectionPtr& connection, bool reset) {
  if (!reset && connection->client.is_open()) discard_unread(connection->client.native_handle());
  close(connection->client, reset);
  close(connection->engine, reset);
  connection->alarm.cancel();
  Connections* const list = std::exchange(connection->list, nullptr);
  if (list != nullptr) list->erase(connection->place);
  notify_room();
  if (count() == 0) settled.notify();
}

// Reads and discards what the client has sent: when a connection with unread bytes is closed, the
// kernel resets it and discards unsent bytes.
void Publisher::State::discard_unread(int client) {
  constexpr int kMaxReads = 16;  // the client may send faster than this loop reads
  for (int i = 0; i < kMaxReads; ++i) {
    if (::recv(client, buffer.data(), buffer.size(), MSG_DONTWAIT) <= 0) return;
  }
}

Publisher::Publisher(asio::any_io_executor executor, std::string address, const std::string& target,
                     PublisherLimits limits, HttpFraming::Judge judge)
    : state_(std::make_shared<State>(std::move(executor), std::move(address), target, limits,
                                     std::move(judge))) {}

Publisher::~Publisher() {
  state_->stop_accepting();
  state_->listener.reset();
  state_->kept.clear();
  for (const auto& connection : state_->all()) state_->drop(connection, connection->is_busy());
}

void Publisher::start(PublishedSockets inherited) {
  state_->listener = std::move(inherited.listener);
  if (!state_->listener) state_->listener = listen_on(state_->endpoint, state_->address);
  state_->kept = std::move(inherited.clients);
  state_->begin();
}

awaitable<bool> Publisher::drain(base::Deadline deadline, Successor successor) {
  // The copy keeps the state alive if the publisher is destroyed meanwhile.
  const std::shared_ptr<State> state = state_;
  const std::size_t cut_before = state->cut;
  state->stop(successor);
  while (state->count() > 0 && !deadline.expired()) co_await state->settled.wait(deadline);
  state->cut += state->count();
  for (const auto& connection : state->all()) state->drop(connection, true);
  co_return state->cut == cut_before;
}

PublishedSockets Publisher::take() {
  PublishedSockets left;
  left.listener = std::move(state_->listener);
  for (UniqueFd& client : std::exchange(state_->kept, {})) {
    char first = 0;
    const bool has_ended = ::recv(client.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    if (!has_ended) left.clients.push_back(std::move(client));
  }
  return left;
}

void Publisher::resume() { state_->begin(); }

std::size_t Publisher::connections() const { return state_->count() + state_->kept.size(); }

std::size_t Publisher::busy() const { return state_->busy.size(); }

std::uint16_t Publisher::port() const {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  auto* generic = reinterpret_cast<sockaddr*>(&name);
  const int listener = state_->acceptor ? state_->acceptor->fd() : state_->listener.get();
  if (::getsockname(listener, generic, &size) != 0) return 0;
  // The port has the same offset in both address families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&name)->sin_port);
}

}  // namespace fo::engine
