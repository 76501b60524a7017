// Streamed answers of the server with headers, clients that disconnect meanwhile, and TLS.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.h"
#include "http/client.h"
#include "http/connection.h"
#include "http/server.h"
#include "loop/test_loop.h"
#include "net/tls.h"
#include "os/process/sibling.h"
#include "support.h"
#include "support/authority.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/fds.h"

namespace fo::http::test {
namespace {

using base::ExitStatus;
using fo::test::status_of;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using ConnectionPtr = std::unique_ptr<Connection>;

std::string stream_request(const std::string& more = "", const std::string& version = "1.1") {
  return "GET / HTTP/" + version + "\r\nHost: x\r\n" + more + "\r\n";
}

/// The answer of a server with this handler to one request, after which the client sends no more.
std::string answer_of(Handler handler, const std::string& request) {
  TestServer server(std::move(handler));
  RawClient client(server.port());
  client.send(request);
  client.finish();
  return client.read_to_end();
}

// Cuts the answer to `request` after its first piece. Returns the errno of the client that reads
// it, 0 for an end.
int error_after_cut(Reply::Cut how, std::string& got,
                    const std::string& request = stream_request()) {
  std::promise<void> is_read;
  std::shared_future<void> when_read = is_read.get_future().share();
  TestServer server([how, when_read](const Request&, Reply& reply) -> awaitable<void> {
    co_await reply.begin(200, "text/plain");
    co_await reply.write("one ");
    when_read.wait();
    reply.cut(how);
    EXPECT_THROW(co_await reply.write("two"), std::exception);
  });
  RawClient client(server.port());
  client.send(request);
  got = client.read_until("one ");
  is_read.set_value();
  char byte = 0;
  ssize_t count = 0;
  while ((count = ::recv(client.fd(), &byte, 1, 0)) > 0) got += byte;
  return count == 0 ? 0 : errno;
}

Handler streaming(Fields headers, int status = 200) {
  return [status, headers = std::move(headers)](const Request&, Reply& reply) -> awaitable<void> {
    ResponseHead head{status, headers};
    co_await reply.begin(std::move(head));
    co_await reply.write("one ");
    co_await reply.write("two");
  };
}

TEST(HttpStreams, AHandlerCutsItsConnectionAlsoByAReset) {
  std::string got;
  EXPECT_EQ(error_after_cut(Reply::Cut::kClose, got), 0);
  EXPECT_THAT(got, testing::AllOf(HasSubstr("one "), Not(HasSubstr("two"))));
  EXPECT_THAT(got, Not(EndsWith("0\r\n\r\n")));
  EXPECT_EQ(error_after_cut(Reply::Cut::kReset, got), ECONNRESET);
  EXPECT_THAT(got, Not(HasSubstr("two")));
}

TEST(HttpStreams, HaveHeadersOfTheHandlersChoice) {
  const std::string answer = answer_of(streaming({{"Content-Type", "audio/wav"},
                                                  {"X-A", "1"},
                                                  {"X-A", "2"},
                                                  {"Connection", "upgrade"},
                                                  {"transfer-encoding", "gzip"},
                                                  {"Content-Length", "x"},
                                                  {"X-Bad", "a\r\nX-Evil: b"},
                                                  {"X Bad", "a"}},
                                                 206),
                                       stream_request());
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 206 Partial Content\r\nContent-Type: audio/wav\r\n"
                                 "X-A: 1\r\nX-A: 2\r\nTransfer-Encoding: chunked\r\n"
                                 "Connection: keep-alive\r\n\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"));
}

TEST(HttpStreams, OldClientsGetNoChunks) {
  const std::string answer =
      answer_of(streaming({}), stream_request("Connection: keep-alive\r\n", "1.0"));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\none two"));
}

TEST(HttpStreams, OldClientsSeeThatAnAnswerIsIncomplete) {
  std::string got;
  EXPECT_EQ(error_after_cut(Reply::Cut::kClose, got, stream_request("", "1.0")), ECONNRESET);
  EXPECT_THAT(got, EndsWith("\r\n\r\none "));
  TestServer server(answer_half);
  testing::internal::CaptureStderr();
  RawClient client(server.port());
  client.send(stream_request("", "1.0"));
  client.read_to_end();
  EXPECT_EQ(client.end(), ECONNRESET);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("engine died"));
}

TEST(HttpStreams, MayHaveALength) {
  const std::string answer = answer_of(streaming({{"content-length", "7"}}), stream_request());
  EXPECT_THAT(answer, HasSubstr("Content-Length: 7\r\nConnection: keep-alive\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("chunked")));
  EXPECT_THAT(answer, EndsWith("\r\n\r\none two"));
  EXPECT_THAT(answer_of(streaming({{"Content-Length", "7"}}),
                        stream_request("Connection: keep-alive\r\n", "1.0")),
              HasSubstr("Connection: keep-alive"));
}

TEST(HttpStreams, OfAnotherLengthThanTheyHaveAreCut) {
  for (const char* const length : {"6", "8"}) {
    testing::internal::CaptureStderr();
    const std::string answer =
        answer_of(streaming({{"Content-Length", length}}), stream_request() + stream_request());
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("Content-Length"));
    // The second request has no answer.
    EXPECT_EQ(answer.find("200 OK"), answer.rfind("200 OK"));
  }
}

TEST(HttpStreams, WithoutABodyEndWithTheirHead) {
  EXPECT_THAT(answer_of(streaming({}, 204), stream_request()), EndsWith("\r\n\r\n"));
  EXPECT_THAT(answer_of(streaming({}, 204), stream_request()), Not(HasSubstr("chunked")));
  EXPECT_THAT(answer_of(streaming({{"Content-Length", "7"}}, 204), stream_request()),
              Not(HasSubstr("Content-Length")));
  EXPECT_THAT(answer_of(streaming({{"Content-Length", "7"}}, 304), stream_request()),
              EndsWith("Content-Length: 7\r\nConnection: keep-alive\r\n\r\n"));
  const std::string head = "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_THAT(answer_of(streaming({{"Content-Length", "9"}}), head),
              EndsWith("Content-Length: 9\r\nConnection: keep-alive\r\n\r\n"));
  EXPECT_THAT(answer_of(streaming({}), head), EndsWith("\r\n\r\n"));
}

TEST(HttpStreams, AClientThatDoesNotReadHoldsTheHandlerUp) {
  constexpr std::size_t kPiece = std::size_t{64} << 10;
  constexpr std::size_t kAll = 2000 * kPiece;
  std::atomic<std::size_t> written = 0;
  TestServer server([&](const Request&, Reply& reply) -> awaitable<void> {
    co_await reply.begin(200, "text/plain");
    const std::string piece(kPiece, 'x');
    while (written < kAll) {
      co_await reply.write(piece);
      written += piece.size();
    }
  });
  RawClient client(server.port());
  client.send(stream_request("Connection: close\r\n"));
  fo::test::await([&] { return written > 0; });
  // Wait until the kernel's buffers are full: then nothing happens on the server's loop.
  std::size_t before = 0;
  for (int idle_turns = 0; idle_turns < 100; ++idle_turns) {
    const std::size_t now = server.call([&] { return written.load(); });
    if (std::exchange(before, now) != now) idle_turns = 0;
  }
  EXPECT_LT(before, kAll);
  EXPECT_GT(client.read_to_end().size(), kAll);
}

// Clients that do not read what is kept for them.

constexpr std::size_t kLine = 32;
constexpr std::size_t kKept = std::size_t{1} << 20;
// What the kernel keeps beside that, at both ends, is less.
constexpr std::size_t kMaxInKernel = kKept / 2;

/// `count` numbered lines of kLine bytes from number `first` on.
std::string lines(std::size_t first, std::size_t count) {
  std::string text;
  for (std::size_t i = first; i < first + count; ++i) text += fmt::format("{:>31}\n", i);
  return text;
}

/// A server that writes lines as fast as it may.
class HttpKept : public fo::test::FdCounting {
 protected:
  static ServerLimits limits(base::Duration write_timeout = ServerLimits().write_timeout) {
    return {.write_timeout = write_timeout, .kept_bytes = kKept};
  }
  /// Writes lines of `total` bytes in all.
  awaitable<void> write_lines(Reply& reply, std::size_t total) {
    constexpr std::size_t kLines = 100;
    co_await reply.begin(200, "text/plain");
    while (written_ < total) {
      const std::string piece = lines(written_ / kLine, kLines);
      co_await reply.write(piece);
      written_ += piece.size();
    }
  }
  Handler write_all(std::size_t total) {
    return [this, total](const Request&, Reply& reply) -> awaitable<void> {
      written_ = 0;
      co_await write_lines(reply, total);
      ++ended_;
    };
  }
  /// Writes `total` bytes, and waits until it is cancelled.
  Handler write_and_wait(std::size_t total) {
    return [this, total](const Request&, Reply& reply) -> awaitable<void> {
      reply.cancel_when_client_goes();
      co_await write_lines(reply, total);
      is_waiting_ = true;
      boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor,
                                      std::chrono::hours(1));
      try {
        co_await timer.async_wait(boost::asio::use_awaitable);
      } catch (const boost::system::system_error&) {
        ++ended_;
        throw;
      }
    };
  }
  static RawClient client_of(const Listener& listener) {
    RawClient client;
    limit_buffers(client.fd());
    client.connect(listener.port);
    return client;
  }

  std::atomic<std::size_t> written_ = 0;
  std::atomic<bool> is_waiting_ = false;
  std::atomic<int> ended_ = 0;
};

TEST_F(HttpKept, AHandlerIsHeldUpOnceTheLimitIsKept) {
  constexpr std::size_t kAll = 1000 * 100 * kLine;
  TestServer server(write_all(kAll), limits());
  Listener listener = small_listener();
  server.listen(std::move(listener.fd));
  RawClient client = client_of(listener);
  client.send(stream_request() + stream_request());
  fo::test::await([&] { return written_ >= kKept; });
  // Wait until nothing happens on the server's loop.
  std::size_t before = 0;
  for (int idle_turns = 0; idle_turns < 100; ++idle_turns) {
    const std::size_t now = server.call([&] { return written_.load(); });
    if (std::exchange(before, now) != now) idle_turns = 0;
  }
  EXPECT_LT(before, kKept + kMaxInKernel);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(body_of_chunks(client.read_until("\r\n0\r\n\r\n")) == lines(0, kAll / kLine)) << i;
  }
}

TEST_F(HttpKept, AnAnswerMayEndBeforeItsClientReadsIt) {
  for (const bool is_chunked : {true, false}) {
    ended_ = 0;
    TestServer server(write_all(kKept), limits());
    Listener listener = small_listener();
    server.listen(std::move(listener.fd));
    RawClient client = client_of(listener);
    client.send(stream_request("Connection: close\r\n", is_chunked ? "1.1" : "1.0"));
    fo::test::await([&] { return ended_ == 1; });
    const std::string answer = client.read_to_end();
    const std::string body =
        is_chunked ? body_of_chunks(answer) : answer.substr(answer.find("\r\n\r\n") + 4);
    EXPECT_TRUE(body == lines(0, body.size() / kLine));
    EXPECT_GE(body.size(), kKept);
  }
}

TEST_F(HttpKept, AnAnswerThatFailsIsSentUpToThere) {
  TestServer server(
      [this](const Request&, Reply& reply) -> awaitable<void> {
        co_await write_lines(reply, kKept);
        ++ended_;
        throw std::runtime_error("engine died");
      },
      limits());
  Listener listener = small_listener();
  server.listen(std::move(listener.fd));
  testing::internal::CaptureStderr();
  RawClient client = client_of(listener);
  client.send(stream_request());
  fo::test::await([&] { return ended_ == 1; });
  std::string answer = client.read_to_end();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("engine died"));
  EXPECT_THAT(answer, Not(EndsWith("0\r\n\r\n")));
  EXPECT_GE(body_of_chunks(answer + "0\r\n").size(), kKept);
}

TEST_F(HttpKept, AClientThatDoesNotReadIsCutOff) {
  TestServer server(write_all(100 * kKept), limits(std::chrono::milliseconds(20)));
  Listener listener = small_listener();
  server.listen(std::move(listener.fd));
  const RawClient client = client_of(listener);
  client.send(stream_request());
  fo::test::await([&] { return written_ > 0 && server.connections() == 0; });
  EXPECT_EQ(ended_, 0);
}

TEST_F(HttpKept, AClientThatDoesNotReadTheEndIsCutOff) {
  TestServer server(write_all(kKept), limits(std::chrono::milliseconds(20)));
  Listener listener = small_listener();
  server.listen(std::move(listener.fd));
  const RawClient client = client_of(listener);
  client.send(stream_request());
  fo::test::await([&] { return ended_ == 1 && server.connections() == 0; });
}

TEST_F(HttpKept, AClientMayPauseWhileLessIsKept) {
  // The first request's handler waits; the second one's writes more than may be kept.
  int requests = 0;
  const Handler paused = write_and_wait(kKept);
  const Handler endless = write_all(100 * kKept);
  TestServer server(
      [&](const Request& request, Reply& reply) {
        return ++requests == 1 ? paused(request, reply) : endless(request, reply);
      },
      limits(std::chrono::milliseconds(20)));
  Listener listener = small_listener();
  server.listen(std::move(listener.fd));
  RawClient client = client_of(listener);
  client.send(stream_request());
  fo::test::await([&] { return is_waiting_.load(); });
  {
    const RawClient other = client_of(listener);
    other.send(stream_request());
    fo::test::await([&] { return written_ > kKept && server.connections() == 1; });
  }
  const std::string last = lines(kKept / kLine - 1, 1);
  EXPECT_THAT(client.read_until(last), EndsWith(last));
  client.close();
  fo::test::await([&] { return ended_ == 1; });
}

TEST_F(HttpKept, AClientThatGoesCancelsTheHandler) {
  for (const bool is_reset : {false, true}) {
    ended_ = 0;
    written_ = 0;
    is_waiting_ = false;
    TestServer server(write_and_wait(kKept), limits());
    Listener listener = small_listener();
    server.listen(std::move(listener.fd));
    RawClient client = client_of(listener);
    client.send(stream_request());
    fo::test::await([&] { return is_waiting_.load(); });
    is_reset ? client.reset() : client.close();
    fo::test::await([&] { return ended_ == 1 && server.connections() == 0; });
  }
}

TEST_F(HttpKept, TheServerMayGoFirst) {
  Listener listener = small_listener();
  RawClient client;
  {
    TestServer server(write_all(100 * kKept), limits());
    const std::uint16_t port = listener.port;
    server.listen(std::move(listener.fd));
    limit_buffers(client.fd());
    client.connect(port);
    client.send(stream_request());
    fo::test::await([&] { return written_ >= kKept; });
  }
  EXPECT_THAT(client.read_to_end(), Not(EndsWith("0\r\n\r\n")));
}

TEST(HttpRequests, WhoseEndIsNotPlainAreRefused) {
  for (const char* const fields : {"Transfer-Encoding: gzip", "Transfer-Encoding: gzip, chunked",
                                   "Transfer-Encoding: identity"}) {
    EXPECT_THAT(answer_of(streaming({}),
                          "POST / HTTP/1.1\r\nHost: x\r\n" + std::string(fields) + "\r\n\r\n"),
                StartsWith("HTTP/1.1 400 "))
        << fields;
  }
  EXPECT_THAT(
      answer_of(streaming({}), "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
      StartsWith("HTTP/1.1 400 "));
}

// Clients that disconnect.

/// A handler that waits without end, streaming or not, and records how the wait ended.
class Waiting {
 public:
  enum class Begin { kNever, kFirst };
  explicit Waiting(Begin begin) : begin_(begin) {}

  Handler handler() {
    return [this](const Request& request, Reply& reply) -> awaitable<void> {
      if (request.path != "/wait") {
        reply.answer({200, "text/plain", "not waiting", {}});
        co_return;
      }
      reply.cancel_when_client_goes();
      // A second call has no effect.
      reply.cancel_when_client_goes();
      if (begin_ == Begin::kFirst) co_await reply.begin(200, "text/event-stream");
      entered_.set_value();
      boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor,
                                      std::chrono::hours(1));
      try {
        co_await timer.async_wait(boost::asio::use_awaitable);
      } catch (const boost::system::system_error& error) {
        ended_.set_value(error.code());
        throw;
      }
    };
  }
  void wait_until_entered() { is_entered_.get(); }
  bool is_entered() {
    return is_entered_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  bool is_cancelled() { return ended_.get_future().get() == boost::asio::error::operation_aborted; }

 private:
  Begin begin_;
  std::promise<void> entered_;
  std::future<void> is_entered_ = entered_.get_future();
  std::promise<boost::system::error_code> ended_;
};

const std::string kWait = "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n";

class HttpClientGone : public testing::TestWithParam<Waiting::Begin> {};
INSTANTIATE_TEST_SUITE_P(Begins, HttpClientGone,
                         testing::Values(Waiting::Begin::kNever, Waiting::Begin::kFirst));

TEST_P(HttpClientGone, CancelsTheHandler) {
  Waiting waiting(GetParam());
  TestServer server(waiting.handler());
  testing::internal::CaptureStderr();
  {
    RawClient client(server.port());
    client.send(kWait);
    waiting.wait_until_entered();
  }
  EXPECT_TRUE(waiting.is_cancelled());
  fo::test::await([&] { return server.connections() == 0; });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "nobody did anything wrong";
}

TEST_P(HttpClientGone, ByAResetToo) {
  Waiting waiting(GetParam());
  TestServer server(waiting.handler());
  {
    RawClient client(server.port());
    client.send(kWait);
    waiting.wait_until_entered();
    const linger reset{1, 0};
    EXPECT_EQ(::setsockopt(client.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
  }
  EXPECT_TRUE(waiting.is_cancelled());
}

TEST_P(HttpClientGone, WithARequestBehindTheFirst) {
  Waiting waiting(GetParam());
  TestServer server(waiting.handler());
  {
    RawClient client(server.port());
    client.send(kWait);
    waiting.wait_until_entered();
    client.send(stream_request());
  }
  EXPECT_TRUE(waiting.is_cancelled());
}

TEST_P(HttpClientGone, TheServerMayGoFirst) {
  Waiting waiting(GetParam());
  boost::asio::io_context loop(1);
  auto server = std::make_unique<Server>(loop.get_executor(), waiting.handler());
  const std::uint16_t port = server->listen("127.0.0.1:0");
  RawClient client(port);
  client.send(kWait);
  const base::Deadline deadline = soon();
  while (!waiting.is_entered() && !deadline.expired()) loop.run_one_for(std::chrono::seconds(1));
  server.reset();
  loop.poll();
  EXPECT_THAT(client.read_to_end(), Not(HasSubstr("500")));
}

/// Answers each request; GET /first, whose client is watched, only after answer().
class FirstHeld {
 public:
  Handler handler() {
    return [this](const Request& request, Reply& reply) -> awaitable<void> {
      reply.cancel_when_client_goes();
      if (request.path == "/first") {
        entered_.set_value();
        boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
        while (may_answer_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
          timer.expires_after(std::chrono::milliseconds(1));
          co_await timer.async_wait(boost::asio::use_awaitable);
        }
      }
      reply.answer({200, "text/plain", "answer to " + request.path, {}});
    };
  }
  void wait_until_entered() { entered_.get_future().get(); }
  void answer() { answer_.set_value(); }

 private:
  std::promise<void> entered_;
  std::promise<void> answer_;
  std::future<void> may_answer_ = answer_.get_future();
};

TEST(HttpClientStays, FurtherRequestsAreAnsweredAfterAWatchedOne) {
  FirstHeld first;
  TestServer server(first.handler());
  RawClient client(server.port());
  client.send("GET /first HTTP/1.1\r\nHost: x\r\n\r\n");
  first.wait_until_entered();
  // One complete request, and the first part of another.
  client.send("GET /second HTTP/1.1\r\nHost: x\r\n\r\nGET /thi");
  first.answer();
  client.read_until("answer to /second");
  client.send("rd HTTP/1.1\r\n\r\n");
  client.read_until("answer to /third");
  client.send("GET /fourth HTTP/1.1\r\nHost: x\r\n\r\n");
  client.read_until("answer to /fourth");
}

TEST(HttpClientStays, AConnectionIsClosedIfItIsIdleAfterAWatchedRequest) {
  const ServerLimits limits{.idle_timeout = std::chrono::milliseconds(20)};
  FirstHeld first;
  TestServer server(first.handler(), limits);
  RawClient client(server.port());
  client.send("GET /second HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.read_to_end(), EndsWith("answer to /second"));
}

TEST(HttpClientStays, AConnectionEndsWithAWatchedRequestThatAsksForIt) {
  FirstHeld first;
  TestServer server(first.handler());
  RawClient client(server.port());
  client.send("GET /second HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.read_to_end(), EndsWith("answer to /second"));
}

TEST(HttpClientStays, OneThatSendsTooMuchAheadIsNotWatchedAndNotCutOff) {
  FirstHeld first;
  TestServer server(first.handler());
  RawClient client(server.port());
  client.send("GET /first HTTP/1.1\r\nHost: x\r\n\r\n");
  first.wait_until_entered();
  client.send("POST /second HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" +
              std::string(200000, 'x'));
  first.answer();
  client.read_until("answer to /first");
  client.read_until("answer to /second");
}

TEST(HttpClientStays, AHandlerThatAskedForNothingIsNotCancelled) {
  std::promise<void> ended;
  TestServer server([&](const Request&, Reply& reply) -> awaitable<void> {
    boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor,
                                    std::chrono::milliseconds(20));
    co_await timer.async_wait(boost::asio::use_awaitable);
    ended.set_value();
    reply.answer({200, "text/plain", "", {}});
  });
  {
    RawClient client(server.port());
    client.send(stream_request());
  }
  ended.get_future().get();
}

// TLS.

class HttpsServer : public fo::test::FdCounting {
 protected:
  Handler echo() {
    return [](const Request& request, Reply& reply) -> awaitable<void> {
      if (request.path == "/stream") {
        reply.cancel_when_client_goes();
        co_await reply.begin(200, "text/plain");
        const std::string piece(100000, 's');
        for (int i = 0; i < 20; ++i) co_await reply.write(piece);
        co_return;
      }
      reply.answer({200, "text/plain", request.method + " " + request.body, {}});
    };
  }
  /// The server's files; it requires no client certificates.
  net::TlsFiles files() {
    net::TlsFiles files = authority_.issue("IP:127.0.0.1");
    files.ca.clear();
    return files;
  }
  FetchOptions options() {
    FetchOptions options;
    options.tls = net::TlsFiles{authority_.ca(), "", ""};
    return options;
  }
  static std::string url(std::uint16_t port, const std::string& path = "/") {
    return "https://127.0.0.1:" + std::to_string(port) + path;
  }
  Origin origin_at(std::uint16_t port) {
    Origin origin;
    origin.address = {"127.0.0.1", port};
    origin.tls = options().tls;
    return origin;
  }

  fo::test::Authority authority_;
};

TEST_F(HttpsServer, Answers) {
  TestServer server(echo());
  const std::uint16_t port = server.listen_tls(files());
  FetchOptions request = options();
  request.body = std::string(1 << 20, 'b');
  const Response response = fetch("POST", url(port), soon(), request);
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "POST " + request.body);
  // The other port has no TLS.
  EXPECT_EQ(fetch("GET", server.url(), soon()).status, 200);
}

TEST_F(HttpsServer, Streams) {
  TestServer server(echo());
  const std::uint16_t port = server.listen_tls(files());
  EXPECT_EQ(fetch("GET", url(port, "/stream"), soon(), options()).body, std::string(2000000, 's'));
}

TEST_F(HttpsServer, KeepsWhatAClientDoesNotRead) {
  std::atomic<bool> has_ended = false;
  std::string all;
  for (int i = 0; i < 40'000; ++i) all += fmt::format("{:>31}\n", i);
  const ServerLimits limits{.kept_bytes = all.size()};
  TestServer server(
      [&](const Request&, Reply& reply) -> awaitable<void> {
        co_await reply.begin(200, "text/plain");
        for (std::size_t at = 0; at < all.size(); at += 3200) {
          co_await reply.write(std::string_view(all).substr(at, 3200));
        }
        has_ended = true;
      },
      limits);
  Listener listener = small_listener();
  server.listen_tls(std::move(listener.fd), files());
  fo::test::TestLoop loop;
  const Origin origin = origin_at(listener.port);
  const auto body = [&]() -> awaitable<void> {
    const std::string what = "ask it";
    const ConnectionPtr connection = co_await Connection::open(origin, soon(), what);
    for (int i = 0; i < 2; ++i) {
      has_ended = false;
      RequestHead head;
      co_await connection->send(std::move(head), "", soon());
      fo::test::await([&] { return has_ended.load(); });
      co_await connection->read_head(soon());
      std::array<char, 70000> space;
      std::string got;
      for (;;) {
        const std::size_t count = co_await connection->read_some(space, soon());
        if (count == 0) break;
        got.append(space.data(), count);
      }
      EXPECT_TRUE(got == all) << i;
    }
  };
  loop.run(body());
}

TEST_F(HttpsServer, KeepsConnections) {
  TestServer server(echo());
  const std::uint16_t port = server.listen_tls(files());
  fo::test::TestLoop loop;
  const Origin origin = origin_at(port);
  const auto body = [&]() -> awaitable<void> {
    const std::string what = "ask it";
    const ConnectionPtr connection = co_await Connection::open(origin, soon(), what);
    for (int i = 0; i < 3; ++i) {
      RequestHead head;
      head.target = "/stream";
      co_await connection->send(std::move(head), "", soon());
      co_await connection->read_head(soon());
      std::array<char, 70000> space;
      std::size_t sum = 0;
      for (;;) {
        const std::size_t count = co_await connection->read_some(space, soon());
        if (count == 0) break;
        sum += count;
      }
      EXPECT_EQ(sum, 2000000U);
      EXPECT_TRUE(connection->is_alive());
    }
  };
  loop.run(body());
}

TEST_F(HttpsServer, WantsAClientsCertificateWhereItNamesAnAuthority) {
  TestServer server(echo());
  const std::uint16_t port = server.listen_tls(authority_.issue("IP:127.0.0.1"));
  EXPECT_EQ(status_of([&] { fetch("GET", url(port), soon(), options()); }), ExitStatus::kConfig);
  FetchOptions shown = options();
  shown.tls = authority_.issue("DNS:client");
  EXPECT_EQ(fetch("GET", url(port), soon(), shown).status, 200);
}

TEST_F(HttpsServer, TakesCertificatesThatWereReplaced) {
  TestServer server(echo());
  const net::TlsFiles first = files();
  const std::uint16_t port = server.listen_tls(first);
  EXPECT_EQ(fetch("GET", url(port), soon(), options()).status, 200);
  // A certificate for another address.
  const net::TlsFiles second = authority_.issue("IP:127.0.0.2");
  std::filesystem::rename(second.key, first.key);
  std::filesystem::rename(second.certificate, first.certificate);
  EXPECT_EQ(status_of([&] { fetch("GET", url(port), soon(), options()); }), ExitStatus::kConfig);
  // Without the file clients are refused, and the server continues.
  testing::internal::CaptureStderr();
  std::filesystem::remove(first.certificate);
  EXPECT_EQ(status_of([&] { fetch("GET", url(port), soon(), options()); }),
            ExitStatus::kUnavailable);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(first.certificate));
  const net::TlsFiles third = authority_.issue("IP:127.0.0.1");
  std::filesystem::rename(third.key, first.key);
  std::filesystem::rename(third.certificate, first.certificate);
  EXPECT_EQ(fetch("GET", url(port), soon(), options()).status, 200);
}

TEST_F(HttpsServer, DoesNotListenWithFilesThatCannotBeUsed) {
  TestServer server(echo());
  net::TlsFiles bad = files();
  std::swap(bad.certificate, bad.key);
  EXPECT_EQ(status_of([&] { server.listen_tls(bad); }), ExitStatus::kConfig);
  bad.key.clear();
  EXPECT_EQ(status_of([&] { server.listen_tls(bad); }), ExitStatus::kUsage);
}

TEST_F(HttpsServer, ClientsInTheClearAreClosedOn) {
  TestServer server(echo());
  const std::uint16_t port = server.listen_tls(files());
  RawClient client(port);
  client.send(stream_request());
  EXPECT_THAT(client.read_to_end(), Not(HasSubstr("HTTP")));
  EXPECT_EQ(fetch("GET", url(port), soon(), options()).status, 200);
}

TEST_F(HttpsServer, ASilentClientIsCutOffInTheHandshake) {
  TestServer server(echo(), {.header_timeout = std::chrono::milliseconds(20)});
  const std::uint16_t port = server.listen_tls(files());
  RawClient client(port);
  EXPECT_EQ(client.read_to_end(), "");
}

TEST_F(HttpsServer, IdleClientsAreCutOff) {
  TestServer server(echo(), {.idle_timeout = std::chrono::milliseconds(20)});
  const std::uint16_t port = server.listen_tls(files());
  fo::test::TestLoop loop;
  const Origin origin = origin_at(port);
  const auto body = [&]() -> awaitable<void> {
    const std::string what = "ask it";
    const ConnectionPtr connection = co_await Connection::open(origin, soon(), what);
    try {
      co_await connection->read_head(soon());
      ADD_FAILURE();
    } catch (const base::Error& error) {
      EXPECT_EQ(error.status(), ExitStatus::kUnavailable);
    }
  };
  loop.run(body());
}

TEST_F(HttpsServer, AHandshakeThatEndsLateDoesNotDelayTheEnd) {
  TestServer server(echo());
  const std::uint16_t port = server.listen_tls(files());
  RawClient client(port);
  fo::test::await([&] { return server.is_busy(); });
  std::future<bool> stopped = server.stop(soon());
  boost::asio::ssl::context context = net::make_tls_client(*options().tls);
  const std::unique_ptr<SSL, decltype(&::SSL_free)> ssl(::SSL_new(context.native_handle()),
                                                        &::SSL_free);
  ASSERT_EQ(::SSL_set_fd(ssl.get(), client.fd()), 1);
  ASSERT_EQ(::SSL_connect(ssl.get()), 1);
  EXPECT_TRUE(stopped.get()) << "the connection was cut at the deadline";
}

TEST_F(HttpsServer, TheAnswerToATooLongBodySurvivesTheBody) {
  TestServer server(echo(), {.body_bytes = 1000});
  const std::uint16_t port = server.listen_tls(files());
  FetchOptions request = options();
  request.body = std::string(8 << 20, 'x');
  EXPECT_EQ(fetch("POST", url(port), soon(), request).status, 413);
}

TEST_F(HttpsServer, AnEndWithoutALengthIsSaid) {
  TestServer server([](const Request&, Reply& reply) -> awaitable<void> {
    co_await reply.begin(200, "text/plain");
    co_await reply.write("all of it");
  });
  const std::uint16_t port = server.listen_tls(files());
  // An HTTP/1.0 client, which can tell a complete answer from a truncated one only by TLS.
  const auto ended = os::run_captured(
      {"bash", "-c",
       "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | openssl s_client -quiet -CAfile " + authority_.ca() +
           " -connect 127.0.0.1:" + std::to_string(port) + " 2>&1"},
      soon());
  ASSERT_TRUE(ended);
  EXPECT_THAT(ended->out, HasSubstr("all of it"));
  EXPECT_THAT(ended->out, Not(HasSubstr("unexpected eof")));
}

TEST_F(HttpsServer, AClientThatGoesCancelsTheHandler) {
  Waiting waiting(Waiting::Begin::kFirst);
  TestServer server(waiting.handler());
  const std::uint16_t port = server.listen_tls(files());
  FetchOptions request = options();
  const base::Deadline deadline = base::Deadline::after(std::chrono::milliseconds(200));
  EXPECT_EQ(status_of([&] { fetch("GET", url(port, "/wait"), deadline, request); }),
            ExitStatus::kTryAgain);
  EXPECT_TRUE(waiting.is_cancelled());
}

}  // namespace
}  // namespace fo::http::test
