#include "http/client.h"

#include <sys/socket.h>

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <cerrno>
#include <chrono>
#include <exception>
#include <optional>

#include "base/error.h"
#include "http/address.h"
#include "os/unix_socket.h"

namespace fo::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::awaitable;
using base::Error;
using base::ExitStatus;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;
using Stream = beast::basic_stream<Protocol>;

constexpr std::uint32_t kHeaderLimit = 64 * 1024;

class Fetch {
 public:
  Fetch(asio::any_io_executor loop, std::string_view method, std::string_view url,
        const base::Deadline& deadline, const FetchOptions& options)
      : stream_(std::move(loop)),
        method_(method),
        url_(parse_url(url)),
        deadline_(deadline),
        options_(options),
        what_("fetch " + base::quoted(url)) {
    if (url_.is_tls && !options_.tls) {
      throw Error(ExitStatus::kUsage, what_ + ": https needs the file of an authority to trust");
    }
  }

  awaitable<Response> run() {
    co_await connect();
    const std::string request = make_request();
    error_code error;
    co_await asio::async_write(stream_, asio::buffer(request),
                               asio::redirect_error(asio::use_awaitable, error));
    // A server that refuses a long body answers before it has read it all: look for the answer.
    if (error == beast::error::timeout) check(error);
    Response response;
    co_await read(response);
    co_return response;
  }

 private:
  void check(const error_code& error) const {
    if (!error) return;
    if (error == beast::error::timeout) {
      throw Error(ExitStatus::kTryAgain, what_ + ": timed out");
    }
    if (error == beast::http::error::end_of_stream ||
        error == beast::http::error::partial_message) {
      throw Error(ExitStatus::kUnavailable, what_ + ": the connection ended early");
    }
    if (error == beast::http::error::body_limit) {
      throw Error(ExitStatus::kProtocol, what_ + ": the answer is longer than " +
                                             base::format_size(options_.response_limit));
    }
    const bool garbage =
        error.category() == make_error_code(beast::http::error::bad_method).category();
    throw Error(garbage ? ExitStatus::kProtocol : ExitStatus::kUnavailable, what_, error);
  }

  awaitable<void> connect() {
    if (!url_.socket_path.empty()) {
      co_await connect_unix();
    } else {
      co_await connect_tcp();
    }
  }

  awaitable<void> connect_tcp() {
    const std::string& host = url_.address.host;
    error_code bad_address;
    const asio::ip::tcp::endpoint endpoint(
        asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, bad_address),
        url_.address.port);
    check(bad_address);
    // Made here because asio's own would be inherited by children.
    const Protocol protocol(endpoint.protocol());
    base::UniqueFd fd(::socket(protocol.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int err = errno;
    if (!fd) check(error_code(err, boost::system::system_category()));
    use(protocol, std::move(fd));
    error_code error;
    co_await stream_.async_connect(Protocol::endpoint(endpoint),
                                   asio::redirect_error(asio::use_awaitable, error));
    check(error);
  }

  awaitable<void> connect_unix() {
    asio::steady_timer pause(stream_.get_executor());
    for (;;) {
      std::optional<base::UniqueFd> fd = try_connect_unix();
      if (fd) {
        use(Protocol(AF_UNIX, 0), std::move(*fd));
        co_return;
      }
      // The backlog is full, and Linux offers nothing to wait on for that.
      pause.expires_after(std::chrono::milliseconds(1));
      co_await pause.async_wait(asio::use_awaitable);
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

  void use(const Protocol& protocol, base::UniqueFd fd) {
    stream_.socket().assign(protocol, fd.get());
    static_cast<void>(fd.release());
    if (deadline_.at()) stream_.expires_at(*deadline_.at());
  }

  std::string make_request() const {
    std::string text = method_ + " " + url_.target + " HTTP/1.1\r\nConnection: close\r\nHost: ";
    if (!url_.socket_path.empty()) {
      text += "localhost";
    } else {
      text += to_string(url_.address);
    }
    text += "\r\n";
    for (const auto& [name, value] : options_.headers) text += name + ": " + value + "\r\n";
    if (!options_.body.empty()) text += "Content-Type: " + options_.content_type + "\r\n";
    if (!options_.body.empty() || method_ == "POST" || method_ == "PUT") {
      text += "Content-Length: " + std::to_string(options_.body.size()) + "\r\n";
    }
    return text + "\r\n" + options_.body;
  }

  awaitable<void> read(Response& response) {
    error_code error;
    auto result = asio::redirect_error(asio::use_awaitable, error);
    beast::flat_buffer buffer;
    beast::http::response_parser<beast::http::buffer_body> parser;
    parser.header_limit(kHeaderLimit);
    parser.body_limit(options_.response_limit);
    parser.skip(method_ == "HEAD");
    co_await beast::http::async_read_header(stream_, buffer, parser, result);
    check(error);
    response.status = static_cast<int>(parser.get().result_int());
    response.content_type.clear();
    for (const auto& field : parser.get()) {
      response.headers.emplace_back(field.name_string(), field.value());
    }
    if (const auto type = response.header("Content-Type")) response.content_type = *type;
    std::array<char, 16384> piece;
    while (!parser.is_done()) {
      auto& body = parser.get().body();
      body.data = piece.data();
      body.size = piece.size();
      co_await beast::http::async_read_some(stream_, buffer, parser, result);
      if (error == beast::http::error::need_buffer) error = {};
      if (error == beast::http::error::body_limit) check(error);
      const std::string_view got(piece.data(), piece.size() - body.size);
      if (!options_.on_data) {
        response.body += got;
      } else if (!got.empty() && !options_.on_data(got)) {
        co_return;
      }
      check(error);
    }
  }

  Stream stream_;
  std::string method_;
  Url url_;
  base::Deadline deadline_;
  const FetchOptions& options_;
  std::string what_;
};

}  // namespace

Response fetch(std::string_view method, std::string_view url, const base::Deadline& deadline,
               const FetchOptions& options) {
  asio::io_context loop(1);
  Fetch fetch(loop.get_executor(), method, url, deadline, options);
  Response response;
  std::exception_ptr failure;
  asio::co_spawn(loop, fetch.run(), [&](std::exception_ptr error, Response got) {
    failure = error;
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
