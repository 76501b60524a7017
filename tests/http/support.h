// A server on its own thread, and a client that sends and receives plain bytes.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_future.hpp>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "http/server.h"
#include "support/ports.h"
#include "support/soon.h"

namespace fo::http::test {

using boost::asio::awaitable;

using fo::test::soon;

/// A loop that runs on a thread of its own from start() on. What uses it is created before, and
/// destroyed by call().
class ThreadLoop {
 public:
  ThreadLoop() = default;
  ThreadLoop(const ThreadLoop&) = delete;
  ThreadLoop& operator=(const ThreadLoop&) = delete;
  ~ThreadLoop() {
    work_.reset();
    if (thread_.joinable()) thread_.join();
  }

  void start() {
    thread_ = std::thread([this] { io_.run(); });
  }
  /// Runs `function` on the loop's thread.
  template <typename Function>
  auto call(Function function) {
    std::packaged_task<decltype(function())()> task(std::move(function));
    auto result = task.get_future();
    boost::asio::post(io_, [&task] { task(); });
    return result.get();
  }
  template <typename Result>
  std::future<Result> run(awaitable<Result> task) {
    return boost::asio::co_spawn(io_, std::move(task), boost::asio::use_future);
  }
  boost::asio::io_context::executor_type executor() { return io_.get_executor(); }

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{executor()};
  std::thread thread_;
};

/// A handler that fails in the middle of its answer.
inline boost::asio::awaitable<void> answer_half(const Request&, Reply& reply) {
  co_await reply.begin(200, "text/plain");
  co_await reply.write("half");
  throw std::runtime_error("engine died");
}

/// Limits what the kernel keeps of a connection to about `kSmallBuffer`, at this end of it. Call it
/// before connecting; connections inherit it from their listener.
inline constexpr int kSmallBuffer = 64 * 1024;
inline void limit_buffers(int fd) {
  for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
    EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, option, &kSmallBuffer, sizeof kSmallBuffer), 0);
  }
}
inline Listener small_listener() {
  Listener listener = listen_tcp("127.0.0.1:0");
  limit_buffers(listener.fd.get());
  return listener;
}

/// The body of an answer in chunks, up to its end.
inline std::string body_of_chunks(std::string_view answer) {
  std::string body;
  answer.remove_prefix(answer.find("\r\n\r\n") + 4);
  while (!answer.empty()) {
    const std::size_t size = std::stoul(std::string(answer.substr(0, 8)), nullptr, 16);
    if (size == 0) return body;
    answer.remove_prefix(answer.find("\r\n") + 2);
    body += answer.substr(0, size);
    answer.remove_prefix(size + 2);
  }
  ADD_FAILURE() << "the answer has no end";
  return body;
}

class TestServer {
 public:
  /// Runs `function` on the loop's thread.
  template <typename Function>
  auto call(Function function) {
    return loop_.call(std::move(function));
  }

  explicit TestServer(Handler handler, const ServerLimits& limits = {},
                      EarlyAnswer early_answer = early_response, HeadCheck head_check = {})
      : server_(std::make_unique<Server>(loop_.executor(), std::move(handler), limits,
                                         std::move(early_answer), std::move(head_check))),
        port_(server_->listen("127.0.0.1:0")) {
    loop_.start();
  }
  ~TestServer() {
    call([this] { server_.reset(); });
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string url(const std::string& path = "/") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }

  void listen(base::UniqueFd listener) {
    call([&] { server_->listen(std::move(listener)); });
  }
  /// Listens with TLS on a socket of small_listener().
  void listen_tls(base::UniqueFd listener, const net::TlsFiles& files) {
    call([&] { server_->listen(std::move(listener), files); });
  }
  /// Returns the port.
  std::uint16_t listen_tls(const net::TlsFiles& files) {
    return call([&] { return server_->listen("127.0.0.1:0", files); });
  }
  void close_after_answers() {
    call([this] { server_->close_after_answers(); });
  }
  std::size_t connections() {
    return call([this] { return server_->connections(); });
  }
  bool is_busy() {
    return call([this] { return server_->is_busy(); });
  }
  std::future<bool> stop(
      const base::Deadline& deadline,
      const base::Deadline& idle_until = base::Deadline::after(base::Duration::zero())) {
    return loop_.run(server_->stop(deadline, idle_until));
  }

 private:
  ThreadLoop loop_;
  std::unique_ptr<Server> server_;
  std::uint16_t port_;
};

/// One end of a connection that sends and receives plain bytes.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : RawClient() { connect(port); }
  explicit RawClient(base::UniqueFd fd) : fd_(std::move(fd)) {}
  /// A client that is not connected yet.
  RawClient() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  void connect(std::uint16_t port) const { EXPECT_EQ(fo::test::try_connect(fd_.get(), port), 0); }

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// False if the peer has closed the connection.
  bool send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void finish() const { ::shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }
  /// Closes the connection with a reset.
  void reset() {
    const linger at_once{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
  }

  /// Reads until `text` or the end of the connection; returns the bytes up to that.
  std::string read_until(std::string_view text) {
    while (got_.find(text) == std::string::npos && receive()) {
    }
    return cut(got_.find(text) == std::string::npos ? got_.size() : got_.find(text) + text.size());
  }
  /// Reads `count` bytes, or less at the end of the connection.
  std::string read(std::size_t count) {
    while (got_.size() < count && receive()) {
    }
    return cut(count);
  }
  /// Reads until the peer closes.
  std::string read_to_end() {
    while (receive()) {
    }
    return cut(got_.size());
  }
  /// How the connection ended: 0, or the errno of the read.
  [[nodiscard]] int end() const { return end_; }

 private:
  std::string cut(std::size_t count) {
    std::string head = got_.substr(0, count);
    got_.erase(0, count);
    return head;
  }
  bool receive() {
    pollfd ready{fd_.get(), POLLIN, 0};
    if (::poll(&ready, 1, soon().poll_timeout()) != 1) {
      ADD_FAILURE() << "nothing came after " << got_.size() << " bytes: " << got_.substr(0, 1000);
      return false;
    }
    char buffer[65536];
    const ssize_t count = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    end_ = count < 0 ? errno : 0;
    if (count <= 0) return false;
    got_.append(buffer, static_cast<std::size_t>(count));
    return true;
  }

  base::UniqueFd fd_;
  std::string got_;
  int end_ = -1;
};

}  // namespace fo::http::test
