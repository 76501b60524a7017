#include "net/line_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <chrono>
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
using boost::system::system_error;

// The kernel ends a connection whose sent bytes stay unacknowledged for this long.
constexpr std::chrono::duration<int, std::milli> kUserTimeout = std::chrono::seconds(20);

// The socket with the options of a connection that carries short lines.
tcp::socket with_options(tcp::socket socket) {
  const int timeout = kUserTimeout.count();
  for (const auto& [option, value] : {std::pair{TCP_NODELAY, 1}, {TCP_USER_TIMEOUT, timeout}}) {
    if (::setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value) != 0) {
      base::throw_errno(errno, "use a socket");
    }
  }
  return socket;
}

std::string peer_of(const tcp::socket& socket) {
  error_code ignored;
  const tcp::endpoint peer = socket.remote_endpoint(ignored);
  return to_string(Address{peer.address().to_string(), peer.port()});
}

}  // namespace

LineStream::LineStream(tcp::socket connected, std::optional<asio::ssl::context> tls,
                       std::size_t max_bytes)
    : peer_(peer_of(connected)),
      stream_(with_options(std::move(connected)), std::move(tls)),
      lines_(max_bytes) {}

awaitable<std::unique_ptr<LineStream>> LineStream::connect(std::string server, TlsFiles files,
                                                           std::size_t max_bytes,
                                                           Deadline deadline) {
  const std::string what = "connect to " + server;
  const Address address = parse_server(server);
  std::vector<tcp::endpoint> endpoints = co_await resolve(address.host, address.port, deadline);
  std::optional<asio::ssl::context> tls;
  if (!files.ca.empty()) {
    tls = make_tls_client(files);
  } else if (!std::all_of(endpoints.begin(), endpoints.end(),
                          [](const tcp::endpoint& one) { return one.address().is_loopback(); })) {
    throw Error(ExitStatus::kUsage, "connect to " + base::quoted(server) +
                                        ": not a loopback address: needs TLS, with a ca");
  }
  tcp::socket socket = co_await net::connect(std::move(endpoints), deadline, what);
  auto stream = std::make_unique<LineStream>(std::move(socket), std::move(tls), max_bytes);
  const error_code error =
      co_await stream->begin_tls(Stream::Side::kClient, address.host, deadline);
  if (error) throw stream->stream_.failure("TLS with " + stream->peer_, error);
  co_return stream;
}

awaitable<error_code> LineStream::begin_tls(Stream::Side side, std::string host,
                                            Deadline deadline) {
  error_code error;
  co_await stream_.handshake(side, std::move(host), deadline, error);
  const std::optional<std::string> name = error ? std::nullopt : stream_.peer_name();
  if (name) peer_ += " " + base::quoted(*name);
  co_return error;
}

awaitable<void> LineStream::handshake(Deadline deadline, std::string to_plain) {
  const std::string no_host;
  const error_code error = co_await begin_tls(Stream::Side::kServer, no_host, deadline);
  if (!error) co_return;
  const Error failure = stream_.failure("TLS with " + peer_, error);
  if (is_plain_text(error)) stream_.write_plain(to_plain);
  // Lets the client read the reason.
  co_await drain(deadline);
  throw failure;
}

awaitable<void> LineStream::finish(Deadline deadline) {
  co_await drain(deadline);
  close();
}

awaitable<void> LineStream::drain(Deadline deadline) {
  co_await stream_.shut_down(deadline);
  co_await stream_.drain(deadline);
}

awaitable<LineStream::Input> LineStream::read_line(Deadline deadline) {
  Input input;
  for (;;) {
    if (std::optional<std::string> line = lines_.take_line()) {
      input.kind = Input::Kind::kLine;
      input.line = std::move(*line);
      co_return input;
    }
    std::array<char, 4096> chunk;
    error_code error;
    const std::size_t count = co_await stream_.read_some(asio::buffer(chunk), deadline, error);
    lines_.append({chunk.data(), count});
    if (!error) continue;
    if (error == asio::error::operation_aborted && is_open()) throw system_error(error);
    if (error == Stream::kDeadlinePassed) {
      input.kind = Input::Kind::kNothingYet;
    } else if (error.category() == asio::error::get_ssl_category()) {
      throw stream_.failure("TLS with " + peer_, error);
    }
    co_return input;
  }
}

awaitable<void> LineStream::write(std::string bytes, Deadline deadline) {
  error_code error;
  co_await stream_.write(asio::buffer(bytes), deadline, error);
  if (!error) co_return;
  close();
  const bool is_late = error == Stream::kDeadlinePassed;
  throw Error(is_late ? ExitStatus::kTryAgain : ExitStatus::kUnavailable,
              "send to " + peer_ + ": " + (is_late ? "not sent in time" : error.message()));
}

void LineStream::close() { stream_.close(); }

}  // namespace fo::net
