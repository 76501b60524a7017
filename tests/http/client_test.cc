#include "http/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "loop/spawn.h"
#include "os/socket/unix_socket.h"
#include "support.h"
#include "support/failure.h"
#include "support/ports.h"
#include "support/temp_dir.h"

namespace fo::http::test {
namespace {

using base::ExitStatus;
using fo::test::failure_of;
using fo::test::status_of;

/// Accepts one connection, reads the request's first bytes, sends the given answer, and closes.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer) {
    EXPECT_EQ(::listen(port_.fd(), 8), 0);
    thread_ = std::thread([this, text = std::move(answer)] {
      const base::UniqueFd peer(::accept(port_.fd(), nullptr, nullptr));
      char buffer[4096];
      if (::recv(peer.get(), buffer, sizeof buffer, 0) < 0) return;
      std::string_view rest = text;
      while (!rest.empty()) {
        const ssize_t sent = ::send(peer.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent <= 0) return;
        rest.remove_prefix(static_cast<std::size_t>(sent));
      }
    });
  }
  ~OneAnswer() { thread_.join(); }
  OneAnswer(const OneAnswer&) = delete;
  OneAnswer& operator=(const OneAnswer&) = delete;
  [[nodiscard]] std::string url() const { return port_.url() + "/"; }

 private:
  fo::test::ReservedPort port_;
  std::thread thread_;
};

std::string reason_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
}

ExitStatus answer_status(const std::string& answer, const FetchOptions& options = {}) {
  const OneAnswer server(answer);
  return status_of([&] { fetch("GET", server.url(), soon(), options); });
}

TEST(HttpClient, AMissingSocketIsUnavailable) {
  EXPECT_EQ(status_of([] { fetch("GET", "unix:/nonexistent/s:/", soon()); }),
            ExitStatus::kUnavailable);
}

TEST(HttpClient, AServerThatNeverAnswersTimesOut) {
  const fo::test::ReservedPort port;
  ASSERT_EQ(::listen(port.fd(), 8), 0);
  const base::Deadline deadline = base::Deadline::after(std::chrono::milliseconds(20));
  EXPECT_EQ(status_of([&] { fetch("GET", port.url(), deadline); }), ExitStatus::kTryAgain);
}

/// A Unix socket whose backlog of one is full, and that accepts nothing by itself.
class FullBacklog {
 public:
  FullBacklog() : listener_(os::listen_unix(path(), 0600, 0)) {
    waiting_ = os::connect_unix(path(), soon());
  }
  [[nodiscard]] std::string path() const { return dir_.path("s"); }
  [[nodiscard]] std::string url() const { return "unix:" + path() + ":/"; }
  /// Accepts the pending connection.
  [[nodiscard]] base::UniqueFd accept() const {
    return base::UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  fo::test::TempDir dir_;
  base::UniqueFd listener_;
  base::UniqueFd waiting_;
};

TEST(HttpClient, AFullBacklogTimesOut) {
  const FullBacklog full;
  const base::Deadline deadline = base::Deadline::after(std::chrono::milliseconds(20));
  EXPECT_EQ(status_of([&] { fetch("GET", full.url(), deadline); }), ExitStatus::kTryAgain);
}

/// Ticks, makes room in the backlog at the tenth tick, and closes the next connection.
awaitable<void> tick_and_accept(const FullBacklog& full, int& ticks) {
  const auto loop = co_await boost::asio::this_coro::executor;
  boost::asio::steady_timer timer(loop);
  base::UniqueFd next;
  while (!next) {
    timer.expires_after(std::chrono::milliseconds(1));
    co_await timer.async_wait(boost::asio::use_awaitable);
    // The tenth tick accepts the connection that was pending from the start.
    if (++ticks >= 10) next = full.accept();
    if (ticks == 10) next.reset();
  }
}

TEST(HttpClient, AFullBacklogIsWaitedForAndHoldsNothingElseOnTheLoopUp) {
  const FullBacklog full;
  boost::asio::io_context loop(1);
  int ticks = 0;
  int ticks_at_end = 0;
  std::string reason;
  std::optional<Response> response;
  loop::spawn(loop, loop::store(async_fetch("GET", full.url(), soon()), response),
              [&](const std::exception_ptr& error) {
                ticks_at_end = ticks;
                reason = error ? reason_of(error) : "";
                loop.stop();
              });
  loop::spawn(loop, tick_and_accept(full, ticks));
  loop.run();
  EXPECT_GT(ticks_at_end, 10);
  // The fetch reached the server, which closed the connection.
  EXPECT_THAT(reason, testing::StartsWith("fetch '" + full.url() + "': "));
}

TEST(HttpClient, AnExpiredDeadlineTimesOut) {
  const fo::test::ReservedPort port;
  ASSERT_EQ(::listen(port.fd(), 8), 0);
  const base::Deadline deadline = base::Deadline::after(base::Duration::zero());
  EXPECT_EQ(status_of([&] { fetch("GET", port.url(), deadline); }), ExitStatus::kTryAgain);
}

TEST(HttpClient, TheDeadlineCoversTheLastByte) {
  TestServer server([](const Request&, Reply& reply) -> awaitable<void> {
    co_await reply.begin(200, "text/plain");
    for (;;) co_await reply.write("drip");
  });
  FetchOptions options;
  options.on_data = [](std::string_view) { return true; };
  const base::Deadline deadline = base::Deadline::after(std::chrono::milliseconds(50));
  EXPECT_EQ(status_of([&] { fetch("GET", server.url(), deadline, options); }),
            ExitStatus::kTryAgain);
}

TEST(HttpClient, ErrorsNameTheUrlAndTheReason) {
  const fo::test::ReservedPort port;
  const auto failure = failure_of([&] { fetch("GET", port.url(), soon()); });
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_EQ(failure.message, "fetch '" + port.url() + "': Connection refused");
}

TEST(HttpClient, TooLongAnswersAreProtocolErrors) {
  EXPECT_EQ(answer_status("HTTP/1.1 200 OK\r\nX: " + std::string(100000, 'x') + "\r\n\r\n"),
            ExitStatus::kProtocol);
  FetchOptions options;
  options.response_limit = 10;
  EXPECT_EQ(answer_status("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world", options),
            ExitStatus::kProtocol);
  EXPECT_EQ(answer_status("HTTP/1.1 200 OK\r\n\r\nhello world", options), ExitStatus::kProtocol);
  EXPECT_EQ(
      answer_status("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n",
                    options),
      ExitStatus::kProtocol);
  EXPECT_EQ(answer_status("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhelloworld", options),
            ExitStatus::kOk);
}

TEST(HttpClient, ReadsABodyThatEndsWithTheConnection) {
  const OneAnswer server("HTTP/1.0 200 OK\r\n\r\nall of it");
  EXPECT_EQ(fetch("GET", server.url(), soon()).body, "all of it");
}

TEST(HttpClient, AnyStatusIsAnAnswer) {
  const OneAnswer server("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(fetch("GET", server.url(), soon()).status, 503);
}

TEST(HttpClient, HeadHasNoBody) {
  const OneAnswer server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(fetch("HEAD", server.url(), soon()).body, "");
}

TEST(HttpClient, HandsTheBodyOverAsItComesAndStopsWhenTold) {
  std::promise<void> seen;
  auto was_seen = seen.get_future();
  TestServer server([&](const Request&, Reply& reply) -> awaitable<void> {
    co_await reply.begin(200, "text/event-stream");
    co_await reply.write("data: 1\n\n");
    was_seen.wait();
    co_await reply.write("data: 2\n\n");
    co_await reply.write("data: 3\n\n");
  });
  std::string got;
  FetchOptions options;
  options.on_data = [&](std::string_view piece) {
    if (got.empty()) seen.set_value();
    got += piece;
    return got.find("data: 2\n\n") == std::string::npos;
  };
  const Response response = fetch("GET", server.url(), soon(), options);
  EXPECT_EQ(response.content_type, "text/event-stream");
  EXPECT_EQ(response.body, "");
  EXPECT_THAT(got, testing::StartsWith("data: 1\n\ndata: 2\n\n"));
}

TEST(HttpClient, BadUrlsAreUsageErrors) {
  EXPECT_EQ(status_of([] { fetch("GET", "ftp://localhost/", soon()); }), ExitStatus::kUsage);
}

TEST(HttpClient, HttpsWithoutAnAuthorityIsAUsageError) {
  EXPECT_EQ(status_of([] { fetch("GET", "https://localhost/", soon()); }), ExitStatus::kUsage);
}

}  // namespace
}  // namespace fo::http::test
