#include "net/line_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "net/address.h"
#include "net/connect.h"
#include "net/resolve.h"
#include "net/tls.h"

namespace fo::net {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::system::error_code;

// The kernel ends a connection whose sent bytes stay unacknowledged for this long.
constexpr std::chrono::duration<int, std::milli> kUserTimeout = std::chrono::seconds(20);

struct Outcome {
  error_code error;
  std::size_t bytes = 0;
  bool timed_out = false;
};

// Runs an operation on `socket` and cancels it at the deadline. Throws if the awaiting coroutine is
// cancelled.
template <typename Operation>
awaitable<Outcome> until(tcp::socket& socket, Operation operation, Deadline deadline) {
  asio::steady_timer timer(socket.get_executor(),
                           deadline.at().value_or(asio::steady_timer::time_point::max()));
  auto group = asio::experimental::make_parallel_group(
      std::move(operation),
      [&timer](auto&& token) { return timer.async_wait(std::forward<decltype(token)>(token)); });
  auto result =
      co_await std::move(group).async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
  Outcome outcome;
  outcome.error = std::get<1>(result);
  // Handshakes and connects have no byte count.
  if constexpr (std::tuple_size_v<decltype(result)> == 4) outcome.bytes = std::get<2>(result);
  outcome.timed_out = outcome.error == asio::error::operation_aborted &&
                      !std::get<std::tuple_size_v<decltype(result)> - 1>(result);
  const bool cancelled = outcome.error == asio::error::operation_aborted && !outcome.timed_out;
  if (cancelled && socket.is_open()) throw boost::system::system_error(outcome.error);
  co_return outcome;
}

bool is_tls_error(const error_code& error) {
  return error.category() == asio::error::get_ssl_category();
}

// Whether the peer did not send TLS at all.
bool is_plain_text(const error_code& error) {
  const int reason = ERR_GET_REASON(static_cast<unsigned long>(error.value()));
  return is_tls_error(error) &&
         (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST);
}

// The common name in the peer's certificate.
std::optional<std::string> common_name(SSL* ssl) {
  const std::unique_ptr<X509, decltype(&::X509_free)> certificate(::SSL_get1_peer_certificate(ssl),
                                                                  &::X509_free);
  if (!certificate) return std::nullopt;
  std::array<char, 256> name{};
  const int size = ::X509_NAME_get_text_by_NID(::X509_get_subject_name(certificate.get()),
                                               NID_commonName, name.data(), name.size());
  if (size < 0) return std::nullopt;
  return std::string(name.data());
}

}  // namespace

LineStream::LineStream(tcp::socket connected, std::optional<asio::ssl::context> tls,
                       std::size_t max_bytes)
    : socket_(std::move(connected)), context_(std::move(tls)), lines_(max_bytes) {
  if (context_) tls_.emplace(socket_, *context_);
  error_code ignored;
  const tcp::endpoint peer = socket_.remote_endpoint(ignored);
  peer_ = net::to_string(Address{peer.address().to_string(), peer.port()});
  const int timeout = kUserTimeout.count();
  for (const auto& [option, value] : {std::pair{TCP_NODELAY, 1}, {TCP_USER_TIMEOUT, timeout}}) {
    if (::setsockopt(socket_.native_handle(), IPPROTO_TCP, option, &value, sizeof value) != 0) {
      base::throw_errno(errno, "use a socket");
    }
  }
}

awaitable<std::unique_ptr<LineStream>> LineStream::connect(std::string server, TlsFiles files,
                                                           std::size_t max_bytes,
                                                           Deadline deadline) {
  const std::string what = "connect to " + server;
  const Address address = parse_server(server);
  std::vector<tcp::endpoint> endpoints = co_await resolve(address.host, address.port, deadline);
  std::optional<asio::ssl::context> tls;
  if (!files.ca.empty()) {
    tls = make_tls_client(files, address.host);
  } else if (!std::all_of(endpoints.begin(), endpoints.end(),
                          [](const tcp::endpoint& one) { return one.address().is_loopback(); })) {
    throw Error(ExitStatus::kUsage, "connect to " + base::quoted(server) +
                                        ": not a loopback address: needs TLS, with a ca");
  }
  tcp::socket socket = co_await net::connect(std::move(endpoints), deadline, what);
  auto stream = std::make_unique<LineStream>(std::move(socket), std::move(tls), max_bytes);
  if (stream->tls_) name_server(stream->tls_->native_handle(), address.host);
  co_await stream->handshake(Side::kClient, deadline);
  co_return stream;
}

awaitable<void> LineStream::handshake(Side side, Deadline deadline, std::string to_plain) {
  if (!tls_) co_return;
  auto operation = [this, side](auto&& token) {
    return tls_->async_handshake(
        side == Side::kClient ? asio::ssl::stream_base::client : asio::ssl::stream_base::server,
        std::forward<decltype(token)>(token));
  };
  const Outcome outcome = co_await until(socket_, operation, deadline);
  if (!outcome.error) {
    if (const auto name = common_name(tls_->native_handle())) peer_ += " " + base::quoted(*name);
    co_return;
  }
  if (outcome.timed_out) {
    throw Error(ExitStatus::kTryAgain, "TLS with " + peer_ + ": no answer in time");
  }
  const Error failure = tls_error("TLS with " + peer_, outcome.error, tls_->native_handle());
  // Lets the client read the reason. A client without TLS is not sent an alert.
  if (side == Side::kServer) {
    if (is_plain_text(outcome.error) && !to_plain.empty()) {
      auto send_plain = [this, &to_plain](auto&& token) {
        return asio::async_write(socket_, asio::buffer(to_plain),
                                 std::forward<decltype(token)>(token));
      };
      co_await until(socket_, send_plain, deadline);
    }
    co_await drain(deadline);
  }
  throw failure;
}

awaitable<void> LineStream::finish(Deadline deadline) {
  co_await drain(deadline);
  close();
}

awaitable<void> LineStream::drain(Deadline deadline) {
  error_code error;
  socket_.shutdown(tcp::socket::shutdown_send, error);
  while (!error && socket_.is_open()) {
    std::array<char, 1024> ignored{};
    auto operation = [this, &ignored](auto&& token) {
      return socket_.async_read_some(asio::buffer(ignored), std::forward<decltype(token)>(token));
    };
    const Outcome outcome = co_await until(socket_, operation, deadline);
    error = outcome.error;
  }
}

awaitable<LineStream::Input> LineStream::read_line(Deadline deadline) {
  Input input;
  for (;;) {
    if (std::optional<std::string> line = lines_.take_line()) {
      input.kind = Input::Kind::kLine;
      input.line = std::move(*line);
      co_return input;
    }
    std::array<char, 4096> chunk{};
    auto operation = [this, &chunk](auto&& token) {
      return tls_ ? tls_->async_read_some(asio::buffer(chunk), std::forward<decltype(token)>(token))
                  : socket_.async_read_some(asio::buffer(chunk),
                                            std::forward<decltype(token)>(token));
    };
    const Outcome outcome = co_await until(socket_, operation, deadline);
    lines_.append({chunk.data(), outcome.bytes});
    if (!outcome.error) continue;
    if (outcome.timed_out) {
      input.kind = Input::Kind::kNothingYet;
    } else if (is_tls_error(outcome.error)) {
      throw tls_error("TLS with " + peer_, outcome.error, tls_->native_handle());
    }
    co_return input;
  }
}

awaitable<void> LineStream::write(std::string bytes, Deadline deadline) {
  auto operation = [this, &bytes](auto&& token) {
    return tls_
               ? asio::async_write(*tls_, asio::buffer(bytes), std::forward<decltype(token)>(token))
               : asio::async_write(socket_, asio::buffer(bytes),
                                   std::forward<decltype(token)>(token));
  };
  // A partial write cannot be continued.
  struct CloseUnless {
    LineStream* stream;
    ~CloseUnless() {
      if (stream != nullptr) stream->close();
    }
  } guard{this};
  const Outcome outcome = co_await until(socket_, operation, deadline);
  if (outcome.error) {
    throw Error(outcome.timed_out ? ExitStatus::kTryAgain : ExitStatus::kUnavailable,
                "send to " + peer_ + ": " +
                    (outcome.timed_out ? "not sent in time" : outcome.error.message()));
  }
  guard.stream = nullptr;
}

void LineStream::close() {
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace fo::net
