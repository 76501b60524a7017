// Proxies between a client and etcd, and servers in its place.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/units.h"
#include "loop/spawn.h"

namespace fo::test {

namespace asio = boost::asio;

/// A proxy between a client and a server, on the test's loop.
class Proxy {
 public:
  Proxy(asio::io_context& io, std::uint16_t server)
      : io_(io), server_(server), acceptor_(io, local(0)) {
    loop::spawn(io, accept());
  }
  ~Proxy() {
    acceptor_.close();
    io_.restart();
    io_.run_for(std::chrono::milliseconds(1));
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  /// The delay of each piece, in each direction.
  base::Duration delay{};
  /// The number of the connection, from 1, whose answer is lost.
  int lost = 0;
  /// The answer to every client, without contacting the server; empty to forward the server's.
  std::string instead;
  int connections = 0;
  /// While the server did not listen.
  int refused = 0;

  [[nodiscard]] std::string address() const {
    return "127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
  }

 private:
  using Socket = std::shared_ptr<asio::ip::tcp::socket>;
  static asio::ip::tcp::endpoint local(std::uint16_t port) {
    return {asio::ip::address_v4::loopback(), port};
  }
  asio::awaitable<void> accept() {
    for (;;) {
      boost::system::error_code error;
      const Socket client = std::make_shared<asio::ip::tcp::socket>(io_);
      co_await acceptor_.async_accept(*client, asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return;
      if (!instead.empty()) {
        ++connections;
        std::array<char, 4096> bytes{};
        co_await client->async_read_some(asio::buffer(bytes),
                                         asio::redirect_error(asio::use_awaitable, error));
        co_await asio::async_write(*client, asio::buffer(instead),
                                   asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      const Socket server = std::make_shared<asio::ip::tcp::socket>(io_);
      co_await server->async_connect(local(server_),
                                     asio::redirect_error(asio::use_awaitable, error));
      if (error) {
        ++refused;
        continue;
      }
      const bool is_lost = ++connections == lost;
      loop::spawn(io_, pump(client, server, delay, false));
      loop::spawn(io_, pump(server, client, delay, is_lost));
    }
  }
  static asio::awaitable<void> pump(Socket from, Socket to, base::Duration delay, bool is_lost) {
    asio::steady_timer timer(from->get_executor());
    std::array<char, 4096> bytes{};
    boost::system::error_code error;
    while (!error) {
      const std::size_t got = co_await from->async_read_some(
          asio::buffer(bytes), asio::redirect_error(asio::use_awaitable, error));
      if (error || is_lost) break;
      if (delay > base::Duration::zero()) {
        timer.expires_after(delay);
        co_await timer.async_wait(asio::use_awaitable);
      }
      const asio::const_buffer piece(bytes.data(), got);
      co_await asio::async_write(*to, piece, asio::redirect_error(asio::use_awaitable, error));
    }
    to->close(error);
    from->close(error);
  }

  asio::io_context& io_;
  std::uint16_t server_;
  asio::ip::tcp::acceptor acceptor_;
};

/// A server that answers every request with one text, or with the result of a function of the
/// request.
class Parrot {
 public:
  using Answer = std::function<std::string(const std::string& request)>;

  Parrot(asio::io_context& io, Answer answer)
      : acceptor_(io, asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
        answer_(std::move(answer)) {
    loop::spawn(io, serve());
  }
  Parrot(asio::io_context& io, std::string answer)
      : Parrot(io, [answer = std::move(answer)](const std::string&) { return answer; }) {}
  int answered = 0;

  [[nodiscard]] std::string address() const {
    return "127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
  }

 private:
  asio::awaitable<void> serve() {
    for (;;) {
      boost::system::error_code error;
      asio::ip::tcp::socket client(acceptor_.get_executor());
      co_await acceptor_.async_accept(client, asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return;
      std::array<char, 4096> bytes{};
      const std::size_t got = co_await client.async_read_some(
          asio::buffer(bytes), asio::redirect_error(asio::use_awaitable, error));
      const std::string answer = answer_(std::string(bytes.data(), got));
      co_await asio::async_write(client, asio::buffer(answer),
                                 asio::redirect_error(asio::use_awaitable, error));
      ++answered;
    }
  }

  asio::ip::tcp::acceptor acceptor_;
  Answer answer_;
};

inline std::string http_answer(const std::string& body, const std::string& status = "200 OK") {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

}  // namespace fo::test
