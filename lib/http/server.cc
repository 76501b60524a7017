#include "http/server.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <list>
#include <utility>
#include <vector>

#include "base/cannot_create.h"
#include "base/error.h"
#include "base/text.h"
#include "loop/adopt.h"
#include "loop/pause.h"
#include "net/address.h"
#include "os/log.h"
#include "os/log_limit.h"

namespace fo::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;
using Acceptor = asio::basic_socket_acceptor<Protocol>;
using Socket = Protocol::socket;
using Stream = beast::basic_stream<Protocol>;
using Parser = beast::http::request_parser<beast::http::string_body>;

// While descriptors or memory are wanting: those in use will come free.
constexpr base::Duration kAcceptAgain = std::chrono::milliseconds(100);

std::string_view view(boost::string_view text) { return {text.data(), text.size()}; }

bool is_clean(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return base::is_control(c) && c != '\t'; });
}

std::string status_line(int status) {
  const auto known = beast::http::int_to_status(static_cast<unsigned>(status));
  const bool unknown = known == beast::http::status::unknown;
  return "HTTP/1.1 " + std::to_string(status) + " " +
         (unknown ? "Status" : std::string(view(beast::http::obsolete_reason(known)))) + "\r\n";
}

void add_field(std::string& head, std::string_view name, std::string_view value) {
  if (!is_clean(name) || !is_clean(value)) return;
  head += name;
  head += ": ";
  head += value;
  head += "\r\n";
}

int status_of(const error_code& error) {
  if (error == beast::http::error::header_limit || error == beast::http::error::buffer_overflow) {
    return 431;
  }
  return error == beast::http::error::body_limit ? 413 : 400;
}

bool is_parse_error(const error_code& error) {
  return error.category() == make_error_code(beast::http::error::bad_method).category() &&
         error != beast::http::error::end_of_stream && error != beast::http::error::partial_message;
}

// Of descriptors or memory.
bool is_want_of_room(const error_code& error) {
  return error == boost::system::errc::too_many_files_open ||
         error == boost::system::errc::too_many_files_open_in_system ||
         error == boost::system::errc::no_buffer_space ||
         error == boost::system::errc::not_enough_memory;
}

// The next connection, which no child inherits: asio's own accept would not see to that. None, and
// no error, where it went away again.
Socket take(Acceptor& acceptor, const Protocol& protocol, error_code& error) {
  Socket socket(acceptor.get_executor());
  base::UniqueFd fd(
      ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd) {
    loop::adopt(socket, std::move(fd), error, protocol);
    return socket;
  }
  const int err = errno;
  const bool gone = err == EAGAIN || err == EINTR || err == ECONNABORTED || err == EPROTO;
  if (!gone) error.assign(err, boost::system::system_category());
  return socket;
}

}  // namespace

Listener listen_tcp(const std::string& address) {
  const net::Address parsed = net::parse_address(address);
  const auto check = [&](bool succeeded) {
    if (!succeeded) base::throw_cannot_create(errno, "listen on " + base::quoted(address));
  };
  const tcp::endpoint endpoint(asio::ip::make_address(parsed.host), parsed.port);
  Listener listener;
  listener.fd.reset(
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  check(listener.fd.valid());
  const int fd = listener.fd.get();
  const int yes = 1;
  check(::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
  check(::bind(fd, endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0);
  check(::listen(fd, 1024) == 0);
  tcp::endpoint bound;
  auto size = static_cast<socklen_t>(bound.capacity());
  check(::getsockname(fd, bound.data(), &size) == 0);
  listener.port = bound.port();
  return listener;
}

// Where a session stands, in the order in which one is given up for a new one. One that the handler
// has, which may be streaming its answer, is not.
enum class Stage { kIdle, kReading, kSending, kHandling };
constexpr std::size_t kStages = 4;

struct Server::State {
  State(asio::any_io_executor on, Handler with, const ServerLimits& within)
      : executor(std::move(on)), handler(std::move(with)), limits(within), all_gone(executor) {
    all_gone.expires_at(asio::steady_timer::time_point::max());
  }

  asio::any_io_executor executor;
  Handler handler;
  ServerLimits limits;
  std::list<Acceptor> acceptors;
  /// By stage; the one that has been there for longest comes first.
  std::array<std::list<Session*>, kStages> sessions;
  os::LogLimit log_limit;
  bool stopping = false;
  /// Cancelled when the last session has ended.
  asio::steady_timer all_gone;

  static void start(const std::shared_ptr<State>& state, base::UniqueFd listener,
                    const Protocol& protocol);
  void stop_accepting();
  void close_sessions(bool idle_only);
  [[nodiscard]] std::size_t count() const;
  /// Closes the session that is missed least. False when there is none.
  bool make_room();
};

class Session {
 public:
  using State = Server::State;

  Session(Socket socket, std::shared_ptr<State> state)
      : stream_(std::move(socket)), state_(std::move(state)) {
    std::list<Session*>& idle = sessions_in(Stage::kIdle);
    place_ = idle.insert(idle.end(), this);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { leave(); }

  static awaitable<void> run(std::shared_ptr<Session> self) {
    try {
      co_await self->serve();
    } catch (const std::exception& error) {
      os::log(os::LogLevel::kDebug, "serve a client: {}", error.what());
    }
  }

  static awaitable<void> accept(std::shared_ptr<State> state, Acceptor& acceptor,
                                Protocol protocol);

  awaitable<void> begin(int status, std::string_view content_type) {
    std::string head = status_line(status);
    add_field(head, "Content-Type", content_type);
    add_field(head, "Cache-Control", "no-cache");
    // HTTP/1.0 knows no chunks: there the end of the connection is the end of the answer.
    chunked_ = is_http11_;
    if (!chunked_) keep_alive_ = false;
    if (chunked_) add_field(head, "Transfer-Encoding", "chunked");
    add_connection(head);
    head += "\r\n";
    co_await write_all(head);
  }

  awaitable<void> write_piece(std::string_view piece) {
    if (is_head_ || piece.empty()) co_return;  // an empty chunk would be the last one
    if (!chunked_) {
      co_await write_all(piece);
      co_return;
    }
    const std::string framed = fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
    co_await write_all(framed);
  }

  void close() {
    error_code ignored;
    stream_.socket().close(ignored);
  }
  /// It is counted no more.
  void leave() {
    if (std::exchange(has_left_, true)) return;
    sessions_in(stage_).erase(place_);
    if (state_->count() == 0) state_->all_gone.cancel();
  }

 private:
  std::list<Session*>& sessions_in(Stage stage) {
    return state_->sessions[static_cast<std::size_t>(stage)];
  }

  void enter(Stage stage) {
    std::list<Session*>& to = sessions_in(stage);
    if (!has_left_) to.splice(to.end(), sessions_in(stage_), place_);
    stage_ = stage;
  }

  void add_connection(std::string& head) const {
    add_field(head, "Connection", keep_alive_ && !state_->stopping ? "keep-alive" : "close");
  }

  awaitable<void> write_all(std::string_view bytes) {
    stream_.expires_after(state_->limits.write_timeout);
    error_code error;
    const auto buffer = asio::buffer(bytes.data(), bytes.size());
    co_await asio::async_write(stream_, buffer, asio::redirect_error(asio::use_awaitable, error));
    if (!error) co_return;
    write_failed_ = true;
    throw base::Error(base::ExitStatus::kUnavailable, "write to a client", error);
  }

  awaitable<void> write_response(const Response& response) {
    std::string message = status_line(response.status);
    const bool bodiless = response.status < 200 || response.status == 204 || response.status == 304;
    if (!bodiless) {
      add_field(message, "Content-Type", response.content_type);
      add_field(message, "Content-Length", std::to_string(response.body.size()));
    }
    for (const auto& [name, value] : response.headers) add_field(message, name, value);
    add_connection(message);
    message += "\r\n";
    if (!bodiless && !is_head_) message += response.body;
    co_await write_all(message);
  }

  /// Reads a request. False when the connection is to end; what there is to say has been said.
  awaitable<bool> read(Request& request) {
    error_code error;
    auto result = asio::redirect_error(asio::use_awaitable, error);
    enter(Stage::kReading);
    if (buffer_.size() == 0) {
      enter(Stage::kIdle);
      stream_.expires_after(state_->limits.idle_timeout);
      const auto room = buffer_.prepare(4096);
      const std::size_t got = co_await stream_.async_read_some(room, result);
      enter(Stage::kReading);
      if (error) co_return false;
      buffer_.commit(got);
    }
    Parser parser;
    parser.header_limit(state_->limits.header_bytes);
    parser.body_limit(state_->limits.body_bytes);
    stream_.expires_after(state_->limits.header_timeout);
    co_await beast::http::async_read_header(stream_, buffer_, parser, result);
    is_http11_ = error || parser.get().version() >= 11;
    is_head_ = !error && parser.get().method() == beast::http::verb::head;
    if (!error && !parser.is_done()) {
      const auto expect = parser.get().find(beast::http::field::expect);
      if (expect != parser.get().end() && beast::iequals(expect->value(), "100-continue")) {
        co_await write_all("HTTP/1.1 100 Continue\r\n\r\n");
      }
      stream_.expires_after(state_->limits.body_timeout);
      co_await beast::http::async_read(stream_, buffer_, parser, result);
    }
    if (error) {
      if (is_parse_error(error)) co_await refuse(status_of(error), error.message());
      co_return false;
    }
    auto message = parser.release();
    keep_alive_ = message.keep_alive();
    request.method = view(message.method_string());
    request.target = view(message.target());
    for (const auto& field : message) {
      request.headers.emplace_back(view(field.name_string()), view(field.value()));
    }
    request.body = std::move(message.body());
    if (!split_target(request.target, request.path, request.query)) {
      co_await refuse(400, "bad request target");
      co_return false;
    }
    co_return true;
  }

  /// Answers what can't be read, and lets the client read that: closing with unread bytes in the
  /// socket would reset the connection under the answer.
  awaitable<void> refuse(int status, std::string_view message) {
    keep_alive_ = false;
    const Response response = error_response(status, message);
    co_await write_response(response);
    error_code error;
    stream_.socket().shutdown(Socket::shutdown_send, error);
    stream_.expires_after(std::chrono::seconds(2));
    auto result = asio::redirect_error(asio::use_awaitable, error);
    while (!error) {
      buffer_.clear();
      const auto room = buffer_.prepare(65536);
      co_await stream_.async_read_some(room, result);
    }
  }

  awaitable<void> serve() {
    do {
      Request request;
      const bool is_read = co_await read(request);
      if (!is_read) co_return;
      Reply reply(*this);
      bool failed = false;
      enter(Stage::kHandling);
      try {
        co_await state_->handler(request, reply);
      } catch (const std::exception& error) {
        failed = true;
        // A client that went away fails the writes of a handler that did nothing wrong.
        os::log(write_failed_ ? os::LogLevel::kDebug : os::LogLevel::kError, "answer {} {}: {}",
                request.method, base::quoted(request.path), error.what());
      }
      if (reply.begun()) {
        if (failed) co_return;
        if (chunked_ && !is_head_) co_await write_all("0\r\n\r\n");
      } else {
        enter(Stage::kSending);
        const Response response = failed ? error_response(500, "internal error") : reply.response();
        co_await write_response(response);
      }
    } while (keep_alive_ && !state_->stopping);
    error_code ignored;
    stream_.socket().shutdown(Socket::shutdown_send, ignored);
  }

  Stream stream_;
  std::shared_ptr<State> state_;
  beast::flat_buffer buffer_;
  Stage stage_ = Stage::kIdle;
  std::list<Session*>::iterator place_;
  bool has_left_ = false;
  bool is_http11_ = true;
  bool is_head_ = false;
  bool keep_alive_ = true;
  bool chunked_ = false;
  bool write_failed_ = false;
};

awaitable<void> Reply::begin(int status, std::string_view content_type) {
  begun_ = true;
  co_await session_->begin(status, content_type);
}

awaitable<void> Reply::write(std::string_view piece) { co_await session_->write_piece(piece); }

awaitable<void> Session::accept(std::shared_ptr<State> state, Acceptor& acceptor,
                                Protocol protocol) {
  while (!state->stopping) {
    error_code error;
    co_await acceptor.async_wait(Acceptor::wait_read,
                                 asio::redirect_error(asio::use_awaitable, error));
    if (state->stopping) co_return;
    Socket socket(state->executor);
    if (!error) socket = take(acceptor, protocol, error);
    if (error && is_want_of_room(error) && state->make_room()) continue;
    if (error) {
      state->log_limit.log(os::LogLevel::kWarning, error.message(),
                           "accept an HTTP connection: " + error.message());
      co_await loop::pause_for(kAcceptAgain);
      continue;
    }
    if (!socket.is_open()) continue;
    // Of TCP alone; elsewhere it fails and does nothing.
    socket.set_option(tcp::no_delay(true), error);
    if (state->count() >= state->limits.connections && !state->make_room()) {
      constexpr std::string_view kFull =
          "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
      // Fits any new socket's buffer, so it can't block.
      socket.send(asio::buffer(kFull.data(), kFull.size()), 0, error);
      socket.shutdown(Socket::shutdown_send, error);
      continue;
    }
    auto session = std::make_shared<Session>(std::move(socket), state);
    asio::co_spawn(state->executor, run(std::move(session)), asio::detached);
  }
}

void Server::State::start(const std::shared_ptr<State>& state, base::UniqueFd listener,
                          const Protocol& protocol) {
  Acceptor acceptor(state->executor);
  loop::adopt(acceptor, std::move(listener), "watch a listening socket", protocol);
  // Others may share it and take what it was ready for.
  acceptor.native_non_blocking(true);
  state->acceptors.push_back(std::move(acceptor));
  asio::co_spawn(state->executor, Session::accept(state, state->acceptors.back(), protocol),
                 asio::detached);
}

void Server::State::stop_accepting() {
  stopping = true;
  error_code ignored;
  for (Acceptor& acceptor : acceptors) acceptor.close(ignored);
}

void Server::State::close_sessions(bool idle_only) {
  const std::size_t stages = idle_only ? 1 : kStages;
  for (std::size_t i = 0; i < stages; ++i) {
    for (Session* session : sessions[i]) session->close();
  }
}

std::size_t Server::State::count() const {
  std::size_t sum = 0;
  for (const auto& stage : sessions) sum += stage.size();
  return sum;
}

bool Server::State::make_room() {
  for (std::size_t i = 0; i < static_cast<std::size_t>(Stage::kHandling); ++i) {
    if (sessions[i].empty()) continue;
    Session& session = *sessions[i].front();
    session.leave();
    session.close();
    return true;
  }
  return false;
}

ServerLimits limits_for_probes(std::size_t connections) {
  ServerLimits limits;
  limits.header_bytes = 8 * 1024;
  limits.body_bytes = 4 * base::kKiB;
  limits.connections = connections;
  limits.header_timeout = std::chrono::seconds(5);
  limits.body_timeout = std::chrono::seconds(5);
  limits.idle_timeout = std::chrono::seconds(5);
  limits.write_timeout = std::chrono::seconds(5);
  return limits;
}

Server::Server(asio::any_io_executor executor, Handler handler, const ServerLimits& limits)
    : state_(std::make_shared<State>(std::move(executor), std::move(handler), limits)) {}

Server::~Server() {
  state_->stop_accepting();
  state_->close_sessions(false);
}

std::uint16_t Server::listen(const std::string& address) {
  Listener listener = listen_tcp(address);
  listen(std::move(listener.fd));
  return listener.port;
}

void Server::listen(base::UniqueFd listener) {
  const int family = loop::family_of(listener.get(), "ask for a socket's address");
  State::start(state_, std::move(listener), Protocol(family, 0));
}

std::size_t Server::connections() const { return state_->count(); }

awaitable<bool> Server::stop(base::Deadline deadline) {
  // Held for the case that the server is destroyed meanwhile.
  const std::shared_ptr<State> state = state_;
  state->stop_accepting();
  state->close_sessions(true);
  if (state->count() > 0) {
    if (deadline.at()) state->all_gone.expires_at(*deadline.at());
    error_code ignored;
    co_await state->all_gone.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  const bool finished = state->count() == 0;
  state->close_sessions(false);
  co_return finished;
}

}  // namespace fo::http
