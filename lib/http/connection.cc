#include "http/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "http/message_reader.h"
#include "net/connect.h"
#include "net/resolve.h"
#include "net/stream.h"
#include "net/tls.h"

namespace fo::http {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::system::error_code;

// A body up to this size is copied behind its head, so that one write sends both.
constexpr std::size_t kMaxJoinedBytes = std::size_t{16} * 1024;
// The most bytes of a body that are passed on at a time.
constexpr std::size_t kMaxPassedBytes = std::size_t{16} * 1024;
// Reading more than this of an unwanted answer costs more than a new connection.
constexpr std::size_t kMaxDiscardedBytes = std::size_t{64} * 1024;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view other) {
    return base::equal_ignoring_case(name, other);
  });
}

}  // namespace

std::string Origin::host() const {
  return socket_path.empty() ? to_string(address) : std::string("localhost");
}

Origin make_origin(const net::Url& url, const std::optional<net::TlsFiles>& tls) {
  Origin origin;
  origin.socket_path = url.socket_path;
  origin.address = url.address;
  if (url.is_tls) {
    if (!tls) throw Error(ExitStatus::kUsage, "https needs a CA file");
    origin.tls = tls;
  }
  return origin;
}

struct Connection::State {
  State(net::Stream::Socket socket, std::optional<asio::ssl::context> context, const Limits& limits)
      : stream(std::move(socket), std::move(context)), reader(limits) {}

  std::string make_head(const RequestHead& head, std::optional<std::uint64_t> length) const;
  [[nodiscard]] Error failure(ExitStatus status, std::string_view reason) const {
    return Error(status, what + ": " + std::string(reason));
  }
  [[nodiscard]] bool is_reusable() const {
    return stream.is_open() && !is_closing && is_sent && !write_failed && reader.keeps_alive();
  }

  // Throws what the contract says for an error of the stream.
  [[noreturn]] void fail(const error_code& error) {
    if (error == asio::error::operation_aborted) throw boost::system::system_error(error);
    throw stream.failure(what, error);
  }

  void begin(const RequestHead& head);
  awaitable<bool> write(std::string_view bytes, Deadline deadline);
  awaitable<void> fill(Deadline deadline);
  std::optional<std::size_t> read_body(const Take& take);
  // Calls `read`, a call of the reader, and adds `what` to its errors.
  template <typename Read>
  auto parse(Read read);

  std::string what;
  std::string host;
  net::Stream stream;
  ResponseReader reader;
  std::size_t requests = 0;
  // State of the current request:
  bool is_begun = false;
  bool has_head = false;
  bool is_sent = false;
  bool is_closing = false;
  bool write_failed = false;
};

std::string Connection::State::make_head(const RequestHead& head,
                                         std::optional<std::uint64_t> length) const {
  const auto refuse = [&](std::string_view part) {
    throw failure(ExitStatus::kUsage, "invalid " + std::string(part));
  };
  if (!is_token(head.method)) refuse("method " + base::quoted(head.method));
  if (head.target.empty() || !base::is_graphic(head.target)) {
    refuse("target " + base::quoted(head.target));
  }
  std::string text = head.method + " " + head.target + " HTTP/1.1\r\n";
  if (head.close) text += "Connection: close\r\n";
  text += "Host: " + host + "\r\n";
  for (const auto& [name, value] : head.headers) {
    const bool is_ours =
        is_one_of(name, {"Connection", "Content-Length", "Host", "Trailer", "Transfer-Encoding"});
    if (is_ours || !is_valid_field(name, value)) refuse("header field " + base::quoted(name));
    text += name + ": " + value + "\r\n";
  }
  if (length) text += "Content-Length: " + std::to_string(*length) + "\r\n";
  return text + "\r\n";
}

void Connection::State::begin(const RequestHead& head) {
  if (requests > 0 && !is_reusable()) {
    throw failure(ExitStatus::kSoftware, "the connection can't take another request");
  }
  ++requests;
  reader.begin(head.method == "HEAD");
  is_begun = is_sent = has_head = false;
  is_closing = head.close;
}

// Returns false if the server does not accept more. Throws if nothing of the request was sent.
awaitable<bool> Connection::State::write(std::string_view bytes, Deadline deadline) {
  if (write_failed) co_return false;
  if (!stream.is_open()) throw failure(ExitStatus::kUnavailable, "the connection is closed");
  error_code error;
  const asio::const_buffer buffer(bytes.data(), bytes.size());
  const std::size_t count = co_await stream.write(buffer, deadline, error);
  is_begun |= count > 0;
  if (!error) co_return true;
  write_failed = true;
  // The deadline has passed, or the coroutine was cancelled.
  if (!stream.is_open() || !is_begun) fail(error);
  co_return false;
}

awaitable<void> Connection::State::fill(Deadline deadline) {
  if (!stream.is_open()) throw failure(ExitStatus::kUnavailable, "the connection is closed");
  const net::Stream::Prepare prepare = [this] {
    const std::span<char> space = reader.prepare();
    return asio::mutable_buffer(space.data(), space.size());
  };
  error_code error;
  const std::size_t count = co_await stream.read_some(prepare, deadline, error);
  reader.commit(count);
  if (!error) co_return;
  if (error == asio::error::eof) {
    reader.end();
    co_return;
  }
  if (error != net::Stream::kDeadlinePassed) stream.close();
  fail(error);
}

template <typename Read>
auto Connection::State::parse(Read read) {
  try {
    return read();
  } catch (const Error& error) {
    stream.close();
    throw failure(error.status(), error.what());
  }
}

// Passes the bytes of the body that have arrived to `take`.
std::optional<std::size_t> Connection::State::read_body(const Take& take) {
  std::array<char, kMaxPassedBytes> space;
  const std::optional<std::size_t> count = parse([&] { return reader.read_body(space); });
  if (count.value_or(0) > 0) take(std::string_view(space.data(), *count));
  return count;
}

Connection::Connection(std::unique_ptr<State> state) : state_(std::move(state)) {}
Connection::~Connection() = default;

awaitable<std::unique_ptr<Connection>> Connection::open(Origin origin, Deadline deadline,
                                                        std::string what) {
  const Limits limits;
  co_return co_await open(std::move(origin), deadline, std::move(what), limits);
}

awaitable<std::unique_ptr<Connection>> Connection::open(Origin origin, Deadline deadline,
                                                        std::string what, Limits limits) {
  std::optional<asio::ssl::context> context;
  if (origin.tls) context = net::tls_client(*origin.tls);
  if (deadline.expired()) throw Error(ExitStatus::kTryAgain, what + ": timed out");
  std::unique_ptr<State> state;
  if (!origin.socket_path.empty()) {
    net::Stream::Socket socket = co_await net::connect_unix(origin.socket_path, deadline);
    state = std::make_unique<State>(std::move(socket), std::move(context), limits);
  } else {
    std::vector<tcp::endpoint> endpoints = co_await net::resolve(
        origin.address.host, origin.address.port, deadline, origin.name_servers);
    if (origin.networks) {
      std::erase_if(endpoints, [&](const tcp::endpoint& endpoint) {
        return !origin.networks->contains(endpoint.address());
      });
      if (endpoints.empty()) {
        throw Error(ExitStatus::kUnavailable, what + ": " + base::quoted(origin.address.host) +
                                                  " has no address in the allowed networks");
      }
    }
    tcp::socket socket = co_await net::connect(std::move(endpoints), deadline, what);
    state = std::make_unique<State>(std::move(socket), std::move(context), limits);
  }
  state->what = std::move(what);
  state->host = origin.host();
  error_code error;
  co_await state->stream.handshake(net::Stream::Side::kClient, origin.address.host, deadline,
                                   error);
  if (error) state->fail(error);
  co_return std::unique_ptr<Connection>(new Connection(std::move(state)));
}

void Connection::set_what(std::string what) { state_->what = std::move(what); }

awaitable<void> Connection::send(RequestHead head, std::string_view body, Deadline deadline) {
  State& state = *state_;
  const bool has_body = !body.empty() || is_one_of(head.method, {"POST", "PUT", "PATCH"});
  std::string text =
      state.make_head(head, has_body ? std::optional<std::uint64_t>(body.size()) : std::nullopt);
  state.begin(head);
  const bool is_joined = body.size() <= kMaxJoinedBytes;
  if (is_joined) text += body;
  bool is_taken = co_await state.write(text, deadline);
  if (is_taken && !is_joined) is_taken = co_await state.write(body, deadline);
  state.is_sent = is_taken;
}

awaitable<ResponseHead> Connection::read_head(Deadline deadline) {
  State& state = *state_;
  for (;;) {
    std::optional<ResponseHead> head = state.parse([&] { return state.reader.read_head(); });
    state.has_head = head.has_value();
    if (head) co_return *std::move(head);
    co_await state.fill(deadline);
  }
}

awaitable<std::size_t> Connection::read_some(std::span<char> space, Deadline deadline) {
  State& state = *state_;
  for (;;) {
    const auto count = state.parse([&] { return state.reader.read_body(space); });
    if (count) co_return *count;
    co_await state.fill(deadline);
  }
}

awaitable<std::size_t> Connection::read_some(const Take& take, Deadline deadline) {
  State& state = *state_;
  for (;;) {
    const auto count = state.read_body(take);
    if (count) co_return *count;
    co_await state.fill(deadline);
  }
}

awaitable<bool> Connection::finish(Deadline deadline) {
  State& state = *state_;
  try {
    std::array<char, 4096> space;
    std::size_t left = kMaxDiscardedBytes;
    while (state.has_head && !state.reader.is_complete() && left > 0) {
      const std::size_t count = co_await read_some(space, deadline);
      left -= std::min(count, left);
    }
  } catch (const Error&) {
    state.stream.close();
  }
  const bool is_reusable = state.is_reusable();
  if (!is_reusable) state.stream.close();
  co_return is_reusable;
}

void Connection::close() { state_->stream.close(); }
bool Connection::is_reusable() const { return state_->is_reusable(); }
bool Connection::is_alive() const { return is_reusable() && state_->stream.is_quiet(); }
bool Connection::is_reused() const { return state_->requests > 1; }

Connection::Progress Connection::progress() const {
  if (state_->reader.has_begun()) return Progress::kAnswered;
  return state_->is_begun ? Progress::kSent : Progress::kNothingSent;
}

}  // namespace fo::http
