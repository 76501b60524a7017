// A server on the test's loop that sends and receives plain bytes: it runs a script for each
// connection.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "http/connection.h"
#include "loop/spawn.h"

namespace fo::http::test {

/// The server's end of one connection.
class Peer {
 public:
  explicit Peer(boost::asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}

  /// Reads until `text` or the end of the stream; returns the bytes up to that.
  boost::asio::awaitable<std::string> read_until(std::string text) {
    while (got_.find(text) == std::string::npos) {
      const bool more = co_await read_more();
      if (!more) co_return std::exchange(got_, {});
    }
    std::string head = got_.substr(0, got_.find(text) + text.size());
    got_.erase(0, head.size());
    co_return head;
  }
  /// Reads `count` bytes, or less at the end of the stream.
  boost::asio::awaitable<std::string> read_bytes(std::size_t count) {
    while (got_.size() < count) {
      const bool more = co_await read_more();
      if (!more) break;
    }
    std::string bytes = got_.substr(0, count);
    got_.erase(0, bytes.size());
    co_return bytes;
  }
  boost::asio::awaitable<std::string> read_to_end() {
    for (bool more = true; more;) more = co_await read_more();
    co_return std::exchange(got_, {});
  }
  /// Reads a request without a body.
  boost::asio::awaitable<std::string> read_head() { return read_until("\r\n\r\n"); }

  boost::asio::awaitable<void> write(std::string bytes) {
    boost::system::error_code error;
    auto result = boost::asio::redirect_error(boost::asio::use_awaitable, error);
    written_ += co_await boost::asio::async_write(socket_, boost::asio::buffer(bytes), result);
  }
  /// The number of bytes of write() that the kernel has accepted.
  [[nodiscard]] std::size_t written() const { return written_; }

  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  /// Closes the connection so that the client gets a reset.
  void reset() {
    boost::system::error_code ignored;
    socket_.set_option(boost::asio::socket_base::linger(true, 0), ignored);
    close();
  }

 private:
  boost::asio::awaitable<bool> read_more() {
    char piece[4096];
    boost::system::error_code error;
    auto result = boost::asio::redirect_error(boost::asio::use_awaitable, error);
    const std::size_t count = co_await socket_.async_read_some(boost::asio::buffer(piece), result);
    got_.append(piece, count);
    co_return !error;
  }

  boost::asio::ip::tcp::socket socket_;
  std::string got_;
  std::size_t written_ = 0;
};

class ScriptedServer {
 public:
  /// Called for each connection, with numbers from 1. The connection is closed when the script
  /// ends.
  using Script = std::function<boost::asio::awaitable<void>(Peer&, int number)>;

  ScriptedServer(const boost::asio::any_io_executor& loop, Script script)
      : acceptor_(loop, {boost::asio::ip::address_v4::loopback(), 0}), script_(std::move(script)) {
    loop::spawn(loop, accept());
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  [[nodiscard]] Origin origin() const {
    Origin origin;
    origin.address = {"127.0.0.1", acceptor_.local_endpoint().port()};
    return origin;
  }
  [[nodiscard]] int connections() const { return connections_; }
  /// The number of connections whose scripts have ended.
  [[nodiscard]] int ended() const { return ended_; }
  void stop() { acceptor_.close(); }

 private:
  boost::asio::awaitable<void> accept() {
    boost::system::error_code error;
    auto result = boost::asio::redirect_error(boost::asio::use_awaitable, error);
    for (;;) {
      boost::asio::ip::tcp::socket socket = co_await acceptor_.async_accept(result);
      if (error) co_return;
      loop::spawn(acceptor_.get_executor(), serve(std::move(socket), ++connections_));
    }
  }

  boost::asio::awaitable<void> serve(boost::asio::ip::tcp::socket socket, int number) {
    Peer peer(std::move(socket));
    co_await script_(peer, number);
    ++ended_;
  }

  boost::asio::ip::tcp::acceptor acceptor_;
  Script script_;
  int connections_ = 0;
  int ended_ = 0;
};

}  // namespace fo::http::test
