#include "http/client.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "loop/adopt.h"
#include "loop/alarm.h"
#include "loop/pause.h"
#include "net/address.h"
#include "net/connect.h"
#include "net/resolve.h"
#include "net/tls.h"
#include "os/unix_socket.h"

namespace fo::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::awaitable;
using asio::ip::tcp;
using base::Error;
using base::ExitStatus;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;
using Socket = Protocol::socket;
using TlsStream = asio::ssl::stream<Socket&>;
using Parser = beast::http::response_parser<beast::http::buffer_body>;
using HttpError = beast::http::error;

constexpr std::uint32_t kHeaderLimit = 64 * 1024;
constexpr std::size_t kPieceBytes = std::size_t{16} * 1024;
constexpr base::Duration kConnectAgain = std::chrono::milliseconds(1);

class Fetch {
 public:
  Fetch(const asio::any_io_executor& loop, std::string_view method, std::string_view url,
        const base::Deadline& deadline, const FetchOptions& options)
      : socket_(loop),
        method_(method),
        url_(net::parse_url(url)),
        deadline_(deadline),
        options_(options),
        what_("fetch " + base::quoted(url)) {
    if (!url_.is_tls) return;
    if (!options_.tls) {
      throw Error(ExitStatus::kUsage, what_ + ": https needs a CA file");
    }
    tls_context_.emplace(net::make_tls_client(*options_.tls, url_.address.host));
  }

  awaitable<Response> run() {
    if (deadline_.expired()) throw time_is_over();
    if (!url_.socket_path.empty()) {
      co_await connect_unix();
    } else {
      co_await connect_tcp();
    }
    alarm_.emplace(socket_, deadline_);
    if (url_.is_tls) co_await shake_hands();
    std::string request = make_request();
    co_await write(std::move(request));
    Response response;
    co_await read(response);
    co_return response;
  }

 private:
  [[nodiscard]] Error time_is_over() const {
    return Error(ExitStatus::kTryAgain, what_ + ": timed out");
  }

  void check(const error_code& error) {
    if (!error) return;
    if (alarm_ && alarm_->has_rung()) throw time_is_over();
    if (error == asio::error::operation_aborted) throw boost::system::system_error(error);
    if (error == HttpError::end_of_stream || error == HttpError::partial_message) {
      throw Error(ExitStatus::kUnavailable, what_ + ": the connection ended early");
    }
    if (error == HttpError::body_limit) {
      throw Error(ExitStatus::kProtocol, what_ + ": the answer is longer than " +
                                             base::format_size(options_.response_limit));
    }
    if (error.category() == make_error_code(HttpError::bad_method).category()) {
      throw Error(ExitStatus::kProtocol, what_, error);
    }
    if (tls_) throw net::tls_error(what_, error, tls_->native_handle());
    throw Error(ExitStatus::kUnavailable, what_, error);
  }

  awaitable<void> connect_tcp() {
    std::vector<tcp::endpoint> endpoints = co_await net::resolve(
        url_.address.host, url_.address.port, deadline_, options_.name_servers);
    tcp::socket connected = co_await net::connect(std::move(endpoints), deadline_, what_);
    socket_ = std::move(connected);
  }

  awaitable<void> connect_unix() {
    for (;;) {
      std::optional<base::UniqueFd> fd = try_connect_unix();
      if (fd) {
        loop::adopt(socket_, *std::move(fd), what_, Protocol(AF_UNIX, 0));
        co_return;
      }
      // The backlog is full, and Linux offers nothing to wait on for that.
      co_await loop::pause_for(kConnectAgain);
    }
  }

  // nullopt: its backlog is full, and there is time left.
  [[nodiscard]] std::optional<base::UniqueFd> try_connect_unix() const {
    try {
      return os::connect_unix(url_.socket_path, base::Deadline::after(base::Duration::zero()));
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kTryAgain || deadline_.expired()) throw;
      return std::nullopt;
    }
  }

  awaitable<void> shake_hands() {
    tls_.emplace(socket_, *tls_context_);
    net::name_server(tls_->native_handle(), url_.address.host);
    error_code error;
    co_await tls_->async_handshake(TlsStream::client,
                                   asio::redirect_error(asio::use_awaitable, error));
    check(error);
  }

  awaitable<std::size_t> write_some(asio::const_buffer bytes, error_code& error) {
    auto result = asio::redirect_error(asio::use_awaitable, error);
    if (tls_) co_return co_await tls_->async_write_some(bytes, result);
    co_return co_await socket_.async_write_some(bytes, result);
  }

  awaitable<std::size_t> read_some(asio::mutable_buffer space, error_code& error) {
    auto result = asio::redirect_error(asio::use_awaitable, error);
    if (tls_) co_return co_await tls_->async_read_some(space, result);
    co_return co_await socket_.async_read_some(space, result);
  }

  [[nodiscard]] std::string make_request() const {
    std::string text = method_ + " " + url_.target + " HTTP/1.1\r\nConnection: close\r\nHost: ";
    if (!url_.socket_path.empty()) {
      text += "localhost";
    } else {
      text += to_string(url_.address);
    }
    text += "\r\n";
    for (const auto& [name, value] : options_.headers) text += name + ": " + value + "\r\n";
    if (!options_.body.empty()) text += "Content-Type: application/json\r\n";
    if (!options_.body.empty() || method_ == "POST" || method_ == "PUT") {
      text += "Content-Length: " + std::to_string(options_.body.size()) + "\r\n";
    }
    return text + "\r\n" + options_.body;
  }

  awaitable<void> write(std::string request) {
    asio::const_buffer rest = asio::buffer(request);
    error_code error;
    while (rest.size() > 0 && !error) {
      const std::size_t count = co_await write_some(rest, error);
      rest += count;
    }
    // A server that refuses a long body answers before it has read it all: look for the answer.
    if (error == asio::error::operation_aborted || alarm_->has_rung()) check(error);
  }

  awaitable<void> read(Response& response) {
    Parser parser;
    parser.header_limit(kHeaderLimit);
    parser.body_limit(options_.response_limit);
    parser.skip(method_ == "HEAD");
    error_code error = co_await parse_some(parser);
    check(error);
    response.status = static_cast<int>(parser.get().result_int());
    response.content_type.clear();
    for (const auto& field : parser.get()) {
      response.headers.emplace_back(field.name_string(), field.value());
    }
    if (const auto type = response.header("Content-Type")) response.content_type = *type;
    std::array<char, kPieceBytes> piece;
    while (!parser.is_done()) {
      auto& body = parser.get().body();
      body.data = piece.data();
      body.size = piece.size();
      error = co_await parse_some(parser);
      if (error == HttpError::body_limit) check(error);
      const std::string_view got(piece.data(), piece.size() - body.size);
      if (!options_.on_data) {
        response.body += got;
      } else if (!got.empty() && !options_.on_data(got)) {
        co_return;
      }
      check(error);
    }
  }

  // Reads what the parser needs for its next step: the whole header, or a piece of the body.
  awaitable<error_code> parse_some(Parser& parser) {
    error_code error = HttpError::need_more;
    for (;;) {
      if (unread_.size() > 0) unread_.consume(parser.put(unread_.data(), error));
      if (error == HttpError::need_buffer) error = {};
      if (error != HttpError::need_more) co_return error;
      // What is needed and never ends.
      if (unread_.size() > kHeaderLimit) co_return HttpError::buffer_overflow;
      const std::size_t count = co_await read_some(unread_.prepare(kPieceBytes), error);
      unread_.commit(count);
      if (error == asio::error::eof) {
        if (!parser.got_some()) co_return HttpError::end_of_stream;
        error = {};
        parser.put_eof(error);
        co_return error;
      }
      if (error) co_return error;
      error = HttpError::need_more;
    }
  }

  Socket socket_;
  std::string method_;
  net::Url url_;
  base::Deadline deadline_;
  const FetchOptions& options_;
  std::string what_;
  std::optional<asio::ssl::context> tls_context_;
  std::optional<TlsStream> tls_;
  std::optional<loop::Alarm<Socket>> alarm_;
  // What has come and was not parsed.
  beast::flat_buffer unread_;
};

}  // namespace

Response fetch(std::string_view method, std::string_view url, const base::Deadline& deadline,
               const FetchOptions& options) {
  asio::io_context loop(1);
  Response response;
  std::exception_ptr failure;
  asio::co_spawn(loop, async_fetch(std::string(method), std::string(url), deadline, options),
                 [&](std::exception_ptr error, Response got) {
                   failure = std::move(error);
                   response = std::move(got);
                 });
  loop.run();
  if (failure) std::rethrow_exception(failure);
  return response;
}

awaitable<Response> async_fetch(std::string method, std::string url, base::Deadline deadline,
                                FetchOptions options) {
  const asio::any_io_executor loop = co_await asio::this_coro::executor;
  Fetch fetch(loop, method, url, deadline, options);
  co_return co_await fetch.run();
}

}  // namespace fo::http
