// A TLS server on the test's loop that can stop at a given step.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <string>
#include <utility>

#include "loop/spawn.h"

namespace fo::net::test {

class TlsServer {
 public:
  enum class Stop { kAccepted, kHandsShaken, kRequestRead, kAnswered };

  struct Behaviour {
    /// The step after which it does nothing more and keeps the connection open.
    Stop stop = Stop::kAnswered;
    /// Called at that step.
    std::function<void()> on_stop = [] {};
    std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    /// Send close_notify before closing.
    bool close_notify = true;
    std::string host = "127.0.0.1";
  };

  TlsServer(const boost::asio::any_io_executor& loop, boost::asio::ssl::context context,
            Behaviour behaviour)
      : context_(std::move(context)),
        behaviour_(std::move(behaviour)),
        acceptor_(loop, {boost::asio::ip::make_address(behaviour_.host), 0}),
        forever_(loop) {
    loop::spawn(loop, serve());
  }
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;

  [[nodiscard]] unsigned short port() const { return acceptor_.local_endpoint().port(); }
  [[nodiscard]] std::string url(const std::string& host = "127.0.0.1") const {
    return "https://" + host + ":" + std::to_string(port()) + "/";
  }
  [[nodiscard]] const std::string& request() const { return request_; }
  /// The host that the client named in its handshake.
  [[nodiscard]] const std::string& host() const { return host_; }

 private:
  using Stream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;

  boost::asio::awaitable<void> serve() {
    boost::system::error_code error;
    auto result = boost::asio::redirect_error(boost::asio::use_awaitable, error);
    for (;;) {
      boost::asio::ip::tcp::socket socket = co_await acceptor_.async_accept(result);
      if (error) co_return;
      Stream stream(std::move(socket), context_);
      co_await serve(stream);
    }
  }

  boost::asio::awaitable<void> serve(Stream& stream) {
    boost::system::error_code error;
    auto result = boost::asio::redirect_error(boost::asio::use_awaitable, error);
    co_await stop(Stop::kAccepted);
    co_await stream.async_handshake(Stream::server, result);
    if (error) co_return;
    const char* host = ::SSL_get_servername(stream.native_handle(), TLSEXT_NAMETYPE_host_name);
    host_ = host != nullptr ? host : "";
    co_await stop(Stop::kHandsShaken);
    while (request_.find("\r\n\r\n") == std::string::npos) {
      char piece[4096];
      const std::size_t count = co_await stream.async_read_some(boost::asio::buffer(piece), result);
      if (error) co_return;
      request_.append(piece, count);
    }
    co_await stop(Stop::kRequestRead);
    co_await boost::asio::async_write(stream, boost::asio::buffer(behaviour_.answer), result);
    if (behaviour_.close_notify) co_await stream.async_shutdown(result);
  }

  boost::asio::awaitable<void> stop(Stop here) {
    if (behaviour_.stop != here) co_return;
    behaviour_.on_stop();
    forever_.expires_at(std::chrono::steady_clock::time_point::max());
    co_await forever_.async_wait(boost::asio::use_awaitable);
  }

  boost::asio::ssl::context context_;
  Behaviour behaviour_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer forever_;
  std::string request_;
  std::string host_;
};

}  // namespace fo::net::test
