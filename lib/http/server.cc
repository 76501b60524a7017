#include "http/server.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <exception>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "http/message_reader.h"
#include "loop/acceptor.h"
#include "loop/adopt.h"
#include "loop/event.h"
#include "loop/spawn.h"
#include "net/address.h"
#include "net/stream.h"
#include "net/tls.h"
#include "os/log.h"
#include "os/log_limit.h"
#include "os/socket/unix_socket.h"

namespace fo::http {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;
using Socket = Protocol::socket;

// The timeout for reading the rest of a refused request, and requests behind the last answer.
constexpr base::Duration kRefusalTime = std::chrono::seconds(2);
// The Retry-After of an answer to a client for which the server had no room.
constexpr base::Duration kBusyPause = std::chrono::seconds(1);
// The bytes that a client must read within the write timeout: few, so that a slow client gets a
// long answer, but enough that pieces of this size cost no time.
constexpr std::size_t kMaxWrite = std::size_t{64} * 1024;
// Limit of received bytes of later requests during a handler.
constexpr std::size_t kMaxPipelinedBytes = std::size_t{64} * 1024;

std::string status_line(int status) {
  return fmt::format("HTTP/1.1 {} {}\r\n", status, reason_phrase(status));
}

void add_field(std::string& head, std::string_view name, std::string_view value) {
  if (!is_valid_field(name, value)) return;
  head += name;
  head += ": ";
  head += value;
  head += "\r\n";
}

bool is_bodiless(int status) { return status < 200 || status == 204 || status == 304; }

EarlyError busy(std::string_view message) { return {503, message, kBusyPause}; }

// Without Connection and the empty line. A handler may have no body for a HEAD request.
std::string head_of(const Response& response, bool to_head = false) {
  std::string head = status_line(response.status);
  if (!is_bodiless(response.status)) {
    add_field(head, "Content-Type", response.content_type);
    const bool has_length = !to_head || !response.body.empty();
    if (has_length) add_field(head, "Content-Length", std::to_string(response.body.size()));
  }
  for (const auto& [name, value] : response.headers) add_field(head, name, value);
  return head;
}

}  // namespace

Response early_response(const EarlyError& error) {
  Response response = error_response(error.status, error.message);
  if (error.retry_after) add_retry_after(response, *error.retry_after);
  return response;
}

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

// The stage of a session, in the order in which sessions are closed to make room. A session in the
// handler, which may be streaming its answer, is never closed for that.
enum class Stage { kIdle, kReading, kSending, kHandling };
constexpr std::size_t kStages = 4;

struct Server::State {
  State(asio::any_io_executor on, Handler with, const ServerLimits& within, EarlyAnswer early,
        HeadCheck check)
      : executor(std::move(on)),
        handler(std::move(with)),
        limits(within),
        early_answer(std::move(early)),
        head_check(std::move(check)),
        session_ended(executor) {}

  asio::any_io_executor executor;
  Handler handler;
  ServerLimits limits;
  EarlyAnswer early_answer;
  HeadCheck head_check;
  std::list<loop::Acceptor> acceptors;
  /// Sessions by stage; the one that has been in it for longest is first.
  std::array<std::list<Session*>, kStages> sessions;
  os::LogLimit log_limit;
  /// Bytes of the bodies of all requests.
  base::ByteCount bodies = 0;
  bool stopping = false;
  bool closes_after_answers = false;
  bool closes_idle = false;
  loop::Event session_ended;

  static void start(const std::shared_ptr<State>& state, base::UniqueFd listener,
                    std::shared_ptr<net::ServerTls> tls);
  void stop_accepting();
  void close_sessions(bool idle_only);
  [[nodiscard]] std::size_t count() const;
  [[nodiscard]] RequestReader::Limits reader_limits() const {
    return {limits.header_bytes, limits.body_bytes};
  }
  /// Closes the least important session. False if there is none.
  bool make_room();
  /// Whether this client may connect; if not, that is logged.
  bool admits(int client);
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  using State = Server::State;
  using Step = RequestReader::Step;
  using Tls = std::optional<asio::ssl::context>;

  Session(Socket socket, Tls tls, std::shared_ptr<State> state)
      : stream_(std::move(socket), std::move(tls)),
        state_(std::move(state)),
        reader_(state_->reader_limits()),
        changed_(state_->executor) {
    std::list<Session*>& idle = sessions_in(Stage::kIdle);
    place_ = idle.insert(idle.end(), this);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { leave(); }

  static void start(const std::shared_ptr<Session>& self) {
    // The slot is used until the completion handler has run.
    loop::spawn(
        self->state_->executor, run(self), [self](const std::exception_ptr&) {},
        self->cancel_.slot());
  }

  static awaitable<void> accept(std::shared_ptr<State> state, loop::Acceptor& acceptor,
                                Protocol protocol, std::shared_ptr<net::ServerTls> tls);

  awaitable<void> begin(ResponseHead head) {
    std::string text = status_line(head.status);
    is_bodiless_ = is_head_ || is_bodiless(head.status);
    for (const auto& [name, value] : head.headers) {
      const bool is_framing = base::equal_ignoring_case(name, "Connection") ||
                              base::equal_ignoring_case(name, "Content-Length") ||
                              base::equal_ignoring_case(name, "Transfer-Encoding");
      if (!is_framing) add_field(text, name, value);
    }
    // RFC 9110 allows no length for these, but one for 304 and for the answer to HEAD.
    const bool may_have_length = head.status >= 200 && head.status != 204;
    if (may_have_length) left_ = base::parse_uint(head.header("Content-Length").value_or(""));
    if (left_) add_field(text, "Content-Length", std::to_string(*left_));
    const bool has_end = left_ || is_bodiless(head.status);
    is_chunked_ = !has_end && is_http11_;
    if (!has_end && !is_http11_) keep_alive_ = false;
    if (ends_with_connection()) stream_.reset_on_close(true);
    if (is_chunked_) add_field(text, "Transfer-Encoding", "chunked");
    add_connection(text);
    text += "\r\n";
    co_await send(text);
  }

  awaitable<void> write_piece(std::string_view piece) {
    if (is_bodiless_ || piece.empty()) co_return;  // an empty chunk would be the last one
    if (left_ && piece.size() > *left_) {
      throw base::Error(base::ExitStatus::kSoftware, "write an answer beyond its Content-Length");
    }
    if (left_) *left_ -= piece.size();
    if (!is_chunked_) {
      co_await send(piece);
      co_return;
    }
    std::string chunk = fmt::format("{:x}\r\n", piece.size());
    chunk.reserve(chunk.size() + piece.size() + 2);
    chunk += piece;
    chunk += "\r\n";
    co_await send(chunk);
  }

  void close_after() { keep_alive_ = false; }

  [[nodiscard]] std::string client_host() { return stream_.peer_host(); }

  void watch_client() {
    wants_watch_ = true;
    if (std::exchange(is_watching_, true)) return;
    loop::spawn(state_->executor, watch(shared_from_this()));
  }

  void close() { stream_.close(); }
  void reset() { stream_.reset(); }
  /// Removes the session from the count.
  void leave() {
    if (std::exchange(has_left_, true)) return;
    count_body(0);
    sessions_in(stage_).erase(place_);
    state_->session_ended.notify();
    for (loop::Acceptor& acceptor : state_->acceptors) acceptor.notify_room();
  }

 private:
  static awaitable<void> run(std::shared_ptr<Session> self) {
    try {
      co_await self->handshake();
      co_await self->serve();
    } catch (const std::exception& error) {
      os::log(os::LogLevel::kDebug, "serve a client: {}", error.what());
    }
    // A coroutine that still reads for the session ends, too.
    self->close();
  }

  // While the handler runs: reads from the client until the connection ends or the handler returns.
  // The last read goes on after that, as the first one of the next request.
  static awaitable<void> watch(std::shared_ptr<Session> self) {
    error_code error;
    while (!error && self->wants_watch_ && self->reader_.unread() < kMaxPipelinedBytes) {
      error = co_await self->fill(base::Deadline::never());
    }
    self->is_watching_ = false;
    self->watch_error_ = error;
    self->changed_.notify();
    const bool is_closed = error == asio::error::operation_aborted;
    if (!self->wants_watch_ || !error || is_closed) co_return;
    self->has_gone_ = true;
    self->cancel_.emit(asio::cancellation_type::terminal);
  }

  awaitable<void> stop_watching() {
    if (is_watching_) stream_.interrupt_read();
    while (is_watching_) co_await changed_.wait();
  }

  // Waits for the first bytes of a request.
  awaitable<error_code> wait_for_request() {
    const base::Deadline deadline = base::Deadline::after(state_->limits.idle_timeout);
    error_code error;
    if (is_watching_) {
      while (is_watching_ && !deadline.expired()) co_await changed_.wait(deadline);
      co_await stop_watching();
      error = watch_error_;
    } else {
      error = co_await fill(deadline);
    }
    co_return error;
  }

  // Whether this request's body does not fit beside those of the others.
  [[nodiscard]] bool is_beyond_all() const {
    return body_ > 0 && state_->bodies > state_->limits.all_bodies;
  }

  // Sets the size that the body of this session's request has in the sum of all bodies.
  void count_body(std::size_t bytes) {
    // A session that was closed to make room may still read for a moment.
    if (has_left_) bytes = 0;
    state_->bodies += bytes - std::exchange(body_, bytes);
  }

  std::list<Session*>& sessions_in(Stage stage) {
    return state_->sessions[static_cast<std::size_t>(stage)];
  }

  void enter(Stage stage) {
    std::list<Session*>& to = sessions_in(stage);
    if (!has_left_) to.splice(to.end(), sessions_in(stage_), place_);
    stage_ = stage;
  }

  // Adds the Connection field, and decides here whether the connection is kept, because a client
  // may send its next request as soon as it has read this field.
  void add_connection(std::string& head) {
    if (state_->closes_after_answers) keep_alive_ = false;
    add_field(head, "Connection", keep_alive_ ? "keep-alive" : "close");
  }

  awaitable<void> handshake() {
    enter(Stage::kReading);
    error_code error;
    const base::Deadline deadline = base::Deadline::after(state_->limits.header_timeout);
    const std::string no_host;
    co_await stream_.handshake(net::Stream::Side::kServer, no_host, deadline, error);
    if (error) throw stream_.failure("TLS handshake", error);
  }

  awaitable<void> write_all(std::string_view bytes) {
    while (!bytes.empty()) {
      const base::Deadline deadline = base::Deadline::after(state_->limits.write_timeout);
      const asio::const_buffer piece = asio::buffer(asio::buffer(bytes), kMaxWrite);
      error_code error;
      co_await stream_.write(piece, deadline, error);
      check_write(error);
      bytes.remove_prefix(piece.size());
    }
  }

  void check_write(const error_code& error) {
    if (!error) return;
    write_error_ = error;
    const base::Error failure = stream_.failure("write to a client", error);
    throw base::Error(base::ExitStatus::kUnavailable, failure.what());
  }

  // Sends a part of a streamed answer. What the kernel does not accept is kept, and sent in the
  // background.
  awaitable<void> send(std::string_view bytes) {
    if (state_->limits.kept_bytes == 0) {
      co_await write_all(bytes);
      co_return;
    }
    while (is_sending_ && all_kept() > state_->limits.kept_bytes) co_await until_read();
    check_write(write_error_);
    if (!is_sending_) {
      error_code error;
      bytes.remove_prefix(stream_.write_directly(asio::buffer(bytes), error));
      check_write(error);
      if (bytes.empty()) co_return;
    }
    kept_ += bytes;
    if (std::exchange(is_sending_, true)) co_return;
    loop::spawn(state_->executor, send_kept(shared_from_this()));
  }

  static awaitable<void> send_kept(std::shared_ptr<Session> self) {
    error_code error;
    while (!self->kept_.empty() && !error) {
      // Further bytes are kept meanwhile.
      const std::string bytes = std::exchange(self->kept_, {});
      self->unsent_ = bytes.size();
      while (self->unsent_ > 0 && !error) {
        const asio::const_buffer rest = asio::buffer(bytes) + (bytes.size() - self->unsent_);
        const asio::const_buffer piece = asio::buffer(rest, kMaxWrite);
        const std::size_t count =
            co_await self->stream_.write(piece, base::Deadline::never(), error);
        self->unsent_ -= count;
        self->changed_.notify();
      }
    }
    self->is_sending_ = false;
    if (!self->write_error_) self->write_error_ = error;
    self->changed_.notify();
  }

  [[nodiscard]] std::size_t all_kept() const { return unsent_ + kept_.size(); }

  // Waits until the client has read more of what is kept. If it does not in time, the connection is
  // closed.
  awaitable<void> until_read() {
    const base::Deadline deadline = base::Deadline::after(state_->limits.write_timeout);
    const std::size_t before = all_kept();
    while (is_sending_ && all_kept() == before && !deadline.expired()) {
      co_await changed_.wait(deadline);
    }
    if (!is_sending_ || all_kept() < before) co_return;
    write_error_ = net::Stream::kDeadlinePassed;
    close();
    while (is_sending_) co_await changed_.wait();
  }

  awaitable<void> write_response(const Response& response) {
    std::string message = head_of(response, is_head_);
    add_connection(message);
    message += "\r\n";
    if (!is_bodiless(response.status) && !is_head_) message += response.body;
    co_await write_all(message);
  }

  awaitable<error_code> fill(base::Deadline deadline) {
    const net::Stream::Prepare prepare = [this] {
      const std::span<char> space = reader_.prepare();
      return asio::mutable_buffer(space.data(), space.size());
    };
    error_code error;
    const std::size_t count = co_await stream_.read_some(prepare, deadline, error);
    reader_.commit(count);
    co_return error;
  }

  // Reads the head or the body of a request; false if it is not complete in time.
  awaitable<bool> read_part(Step (RequestReader::*part)(), base::Duration time, Step& step) {
    const base::Deadline deadline = base::Deadline::after(time);
    for (;;) {
      step = (reader_.*part)();
      count_body(reader_.body_size());
      if (step != Step::kNeedsMore || is_beyond_all()) co_return true;
      const error_code error = co_await fill(deadline);
      if (error) co_return false;
    }
  }

  /// Reads a request. False if the connection should end; then any error answer was sent.
  awaitable<bool> read(Request& request) {
    reader_.begin();
    count_body(0);
    keep_alive_ = is_http11_ = true;
    is_head_ = false;
    enter(Stage::kReading);
    if (reader_.unread() == 0) {
      // A session that was in its handshake becomes idle after the idle ones were closed.
      if (state_->closes_idle) co_return false;
      enter(Stage::kIdle);
      const error_code error = co_await wait_for_request();
      enter(Stage::kReading);
      if (error) co_return false;
    } else {
      co_await stop_watching();
    }
    reader_.set_limits(state_->reader_limits());
    Step step = Step::kNeedsMore;
    bool is_read =
        co_await read_part(&RequestReader::read_head, state_->limits.header_timeout, step);
    is_head_ = reader_.is_head();
    if (is_read && step == Step::kDone) {
      is_http11_ = reader_.is_http11();
      keep_alive_ = reader_.keeps_alive();
      std::optional<Response> refusal;
      if (state_->head_check && reader_.has_body()) refusal = state_->head_check(reader_.head());
      if (refusal) {
        co_await refuse(*std::move(refusal));
        co_return false;
      }
      if (reader_.wants_continue()) co_await write_all("HTTP/1.1 100 Continue\r\n\r\n");
      is_read = co_await read_part(&RequestReader::read_body, state_->limits.body_timeout, step);
    }
    if (!is_read) co_return false;
    if (step == Step::kRefused) {
      EarlyError error{reader_.refusal_status(), reader_.refusal()};
      error.request = take_head();
      co_await refuse(state_->early_answer(error));
      co_return false;
    }
    if (is_beyond_all()) {
      EarlyError error = busy("the bodies of all requests in progress exceed the server's limit");
      error.request = take_head();
      co_await refuse(state_->early_answer(error));
      co_return false;
    }
    request = reader_.take();
    co_return true;
  }

  // Ends the reading of a request, and releases its body.
  Request take_head() {
    Request head = reader_.take();
    head.body = std::string();
    reader_.begin();
    count_body(0);
    return head;
  }

  /// Answers a request that the handler does not get, and gives the client time to read the answer.
  awaitable<void> refuse(Response response) {
    keep_alive_ = false;
    co_await write_response(response);
    const base::Deadline deadline = base::Deadline::after(kRefusalTime);
    co_await stream_.shut_down(deadline);
    co_await stream_.drain(deadline);
  }

  awaitable<void> serve() {
    do {
      Request request;
      const bool is_read = co_await read(request);
      if (!is_read) co_return;
      Reply reply(*this);
      bool failed = false;
      left_.reset();
      is_chunked_ = is_bodiless_ = false;
      enter(Stage::kHandling);
      try {
        co_await state_->handler(request, reply);
      } catch (const std::exception& error) {
        failed = true;
        // A handler whose client has disconnected fails without an error of its own.
        os::log(write_error_ || has_gone_ ? os::LogLevel::kDebug : os::LogLevel::kError,
                "answer {} {}: {}", request.method, base::quoted(request.path), error.what());
      }
      wants_watch_ = false;
      if (reply.begun()) {
        const bool is_whole = co_await end_stream(failed);
        if (failed) co_return;
        if (!is_whole) {
          os::log(os::LogLevel::kError, "answer {} {}: it is shorter than its Content-Length",
                  request.method, base::quoted(request.path));
          co_return;
        }
        if (ends_with_connection()) stream_.reset_on_close(false);
      } else {
        enter(Stage::kSending);
        const Response response = failed ? error_response(500, "internal error") : reply.response();
        co_await write_response(response);
      }
    } while (keep_alive_ && !state_->closes_idle);
    co_await stop_watching();
    const bool has_more = reader_.unread() > 0 || !stream_.is_quiet();
    const base::Deadline deadline = base::Deadline::after(state_->limits.write_timeout);
    co_await stream_.shut_down(deadline);
    if (!has_more) co_return;
    enter(Stage::kReading);
    const base::Deadline drained = base::Deadline::after(kRefusalTime);
    co_await stream_.drain(drained);
  }

  // HTTP/1.0 has no chunks: there the end of the connection ends a streamed answer without a
  // length, and only a reset shows that it is incomplete.
  [[nodiscard]] bool ends_with_connection() const {
    return !is_chunked_ && !is_bodiless_ && !left_;
  }

  // Sends what is kept, and the end of the answer unless the handler has failed. False if the
  // answer is shorter than announced.
  awaitable<bool> end_stream(bool failed) {
    if (is_chunked_ && !is_head_ && !failed) co_await send("0\r\n\r\n");
    while (is_sending_) co_await until_read();
    check_write(write_error_);
    co_return is_bodiless_ || left_.value_or(0) == 0;
  }

  net::Stream stream_;
  std::shared_ptr<State> state_;
  RequestReader reader_;
  Stage stage_ = Stage::kIdle;
  std::list<Session*>::iterator place_;
  bool has_left_ = false;
  error_code write_error_;
  // State of the current request:
  bool is_http11_ = true;
  bool is_head_ = false;
  bool keep_alive_ = true;
  // State of a streamed answer:
  bool is_chunked_ = false;
  bool is_bodiless_ = false;
  std::optional<std::uint64_t> left_;
  std::size_t body_ = 0;
  // Ends all operations of this session.
  asio::cancellation_signal cancel_;
  bool wants_watch_ = false;
  bool is_watching_ = false;
  error_code watch_error_;
  bool has_gone_ = false;
  // Bytes that send_kept() is to send, and the number of those that it has begun to send.
  std::string kept_;
  std::size_t unsent_ = 0;
  bool is_sending_ = false;
  // Notified when watching has ended, and when kept bytes were sent.
  loop::Event changed_;
};

awaitable<void> Reply::begin(int status, std::string_view content_type) {
  ResponseHead head{status,
                    {{"Content-Type", std::string(content_type)}, {"Cache-Control", "no-cache"}}};
  co_await begin(std::move(head));
}

awaitable<void> Reply::begin(ResponseHead head) {
  begun_ = true;
  co_await session_->begin(std::move(head));
}

awaitable<void> Reply::write(std::string_view piece) { co_await session_->write_piece(piece); }

void Reply::close_after() { session_->close_after(); }

void Reply::cut(Cut how) {
  if (how == Cut::kReset) {
    session_->reset();
  } else {
    session_->close();
  }
}

void Reply::cancel_when_client_goes() { session_->watch_client(); }

std::string Reply::client_host() const { return session_->client_host(); }

awaitable<void> Session::accept(std::shared_ptr<State> state, loop::Acceptor& acceptor,
                                Protocol protocol, std::shared_ptr<net::ServerTls> tls) {
  const std::function<bool()> is_full = [] { return false; };
  const std::function<bool()> make_room = [state] { return state->make_room(); };
  for (;;) {
    base::UniqueFd client = co_await acceptor.next(is_full, make_room);
    if (!client || state->stopping) co_return;
    if (!state->admits(client.get())) continue;
    error_code error;
    Socket socket(state->executor);
    loop::adopt(socket, std::move(client), error, protocol);
    if (error) {
      state->log_limit.log(os::LogLevel::kWarning, error.message(),
                           "accept an HTTP connection: " + error.message());
      continue;
    }
    // Only TCP has this option; for other sockets the call fails without effect.
    socket.set_option(tcp::no_delay(true), error);
    if (state->count() >= state->limits.connections && !state->make_room()) {
      if (!tls) {
        const Response full = state->early_answer(busy("too many connections"));
        const std::string message = head_of(full) + "Connection: close\r\n\r\n" + full.body;
        // The text fits into any new socket's buffer, so send does not block.
        socket.send(asio::buffer(message), 0, error);
      }
      socket.shutdown(Socket::shutdown_send, error);
      continue;
    }
    Tls context;
    try {
      if (tls) context = tls->context();
    } catch (const base::Error& refusal) {
      state->log_limit.log(os::LogLevel::kError, refusal.what(), refusal.what());
      continue;
    }
    Session::start(std::make_shared<Session>(std::move(socket), std::move(context), state));
  }
}

void Server::State::start(const std::shared_ptr<State>& state, base::UniqueFd listener,
                          std::shared_ptr<net::ServerTls> tls) {
  const Protocol protocol(loop::family_of(listener.get(), "query a socket's address"), 0);
  state->acceptors.emplace_back(state->executor, std::move(listener), "accept an HTTP connection");
  loop::spawn(state->executor,
              Session::accept(state, state->acceptors.back(), protocol, std::move(tls)));
}

bool Server::State::admits(int client) {
  if (!limits.own_user_only) return true;
  try {
    os::check_own_user(client, "accept an HTTP connection of");
    return true;
  } catch (const base::Error& refusal) {
    log_limit.log(os::LogLevel::kWarning, refusal.what(), refusal.what());
    return false;
  }
}

void Server::State::stop_accepting() {
  stopping = closes_after_answers = true;
  for (loop::Acceptor& acceptor : acceptors) acceptor.close();
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

Server::Server(asio::any_io_executor executor, Handler handler, const ServerLimits& limits,
               EarlyAnswer early_answer, HeadCheck head_check)
    : state_(std::make_shared<State>(std::move(executor), std::move(handler), limits,
                                     std::move(early_answer), std::move(head_check))) {}

Server::~Server() {
  state_->stop_accepting();
  state_->close_sessions(false);
}

std::uint16_t Server::listen(const std::string& address) {
  Listener listener = listen_tcp(address);
  listen(std::move(listener.fd));
  return listener.port;
}

std::uint16_t Server::listen(const std::string& address, const net::TlsFiles& tls) {
  Listener listener = listen_tcp(address);
  listen(std::move(listener.fd), tls);
  return listener.port;
}

void Server::listen(base::UniqueFd listener) { State::start(state_, std::move(listener), nullptr); }

void Server::listen(base::UniqueFd listener, const net::TlsFiles& tls) {
  static_cast<void>(net::make_tls_server(tls));
  State::start(state_, std::move(listener), std::make_shared<net::ServerTls>(tls));
}

void Server::set_limits(const ServerLimits& limits) { state_->limits = limits; }

void Server::close_after_answers() { state_->closes_after_answers = true; }

std::size_t Server::connections() const { return state_->count(); }

bool Server::is_busy() const {
  return state_->count() > state_->sessions[static_cast<std::size_t>(Stage::kIdle)].size();
}

awaitable<bool> Server::stop(base::Deadline deadline, base::Deadline idle_until) {
  // Keeps the state if the server is destroyed meanwhile.
  const std::shared_ptr<State> state = state_;
  state->stop_accepting();
  const base::Deadline idle_by = idle_until.sooner(deadline);
  while (state->count() > 0 && !idle_by.expired()) co_await state->session_ended.wait(idle_by);
  state->closes_idle = true;
  state->close_sessions(true);
  while (state->count() > 0 && !deadline.expired()) co_await state->session_ended.wait(deadline);
  const bool finished = state->count() == 0;
  state->close_sessions(false);
  co_return finished;
}

}  // namespace fo::http
