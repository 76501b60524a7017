#include "engine/publish/publisher.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <csignal>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/publish/judge.h"
#include "http/client.h"
#include "http/support.h"
#include "loop/run.h"
#include "os/socket/unix_socket.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/must_run.h"
#include "support/ports.h"
#include "support/sanitizers.h"
#include "support/soon.h"
#include "support/temp_dir.h"

namespace fo::engine {
namespace {
using base::Deadline;
using base::ExitStatus;
using base::UniqueFd;
using http::test::TestServer;
using PublishedClient = http::test::RawClient;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::await;

using fo::test::soon;

std::string local(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

/// A publisher on its own thread.
class TestPublisher {
 public:
  /// Runs `function` on the loop's thread.
  template <typename Function>
  auto call(Function function) {
    return loop_.call(std::move(function));
  }

  explicit TestPublisher(const std::string& target, PublishedSockets inherited = {},
                         PublisherLimits limits = {}, HttpFraming::Judge judge = {})
      : publisher_(std::make_unique<Publisher>(loop_.executor(), "127.0.0.1:0", target, limits,
                                               std::move(judge))) {
    loop_.start();
    call([&] { publisher_->start(std::move(inherited)); });
  }
  TestPublisher(const std::string& target, PublisherLimits limits)
      : TestPublisher(target, PublishedSockets(), limits) {}
  TestPublisher(const std::string& target, HttpFraming::Judge judge, PublisherLimits limits = {})
      : TestPublisher(target, PublishedSockets(), limits, std::move(judge)) {}
  ~TestPublisher() {
    call([this] { publisher_.reset(); });
  }

  /// Returns once draining has begun.
  std::future<bool> drain(Deadline deadline = soon(), Successor successor = Successor::kFollows) {
    auto drained = run(publisher_->drain(deadline, successor));
    call([] {});
    return drained;
  }
  template <typename Result>
  std::future<Result> run(boost::asio::awaitable<Result> task) {
    return loop_.run(std::move(task));
  }
  PublishedSockets take() {
    return call([this] { return publisher_->take(); });
  }
  void resume() {
    call([this] { publisher_->resume(); });
  }
  std::uint16_t port() {
    return call([this] { return publisher_->port(); });
  }
  std::size_t connections() {
    return call([this] { return publisher_->connections(); });
  }
  std::size_t busy() {
    return call([this] { return publisher_->busy(); });
  }

 private:
  http::test::ThreadLoop loop_;
  std::unique_ptr<Publisher> publisher_;
};

/// After finish(): whether the peer's kernel has acknowledged the end.
bool is_end_acknowledged(const PublishedClient& client) {
  tcp_info info{};
  socklen_t size = sizeof info;
  EXPECT_EQ(::getsockopt(client.fd(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
  return info.tcpi_state == TCP_FIN_WAIT2;
}

/// Whether the peer has ended its stream.
bool is_end_received(const PublishedClient& client) {
  pollfd ended{client.fd(), POLLRDHUP, 0};
  return ::poll(&ended, 1, 0) == 1;
}

/// An engine whose bytes the test sends.
class RawEngine {
 public:
  /// A dead engine keeps its port reserved, but does not listen.
  explicit RawEngine(bool dead = false) { EXPECT_EQ(dead ? 0 : ::listen(port_.fd(), 1024), 0); }
  [[nodiscard]] std::string target() const { return local(port_.number()); }
  [[nodiscard]] PublishedClient accept() const {
    if (!has_client(soon())) ADD_FAILURE() << "no connection came";
    return PublishedClient(UniqueFd(::accept4(port_.fd(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  [[nodiscard]] bool has_client(const Deadline& deadline) const {
    pollfd ready{port_.fd(), POLLIN, 0};
    return ::poll(&ready, 1, deadline.poll_timeout()) == 1;
  }

 private:
  test::ReservedPort port_;
};

/// An engine that answers every request with `name`, or with the request's body if there is one.
class HttpEngine : public TestServer {
 public:
  explicit HttpEngine(const std::string& name)
      : TestServer([name](const http::Request& request,
                          http::Reply& reply) -> http::test::awaitable<void> {
          reply.answer({200, "text/plain", request.body.empty() ? name : request.body, {}});
          co_return;
        }) {}
  [[nodiscard]] std::string target() const { return local(port()); }
};

const std::string kGet = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A client's connection, and the engine's, which has read the client's request.
struct Exchange {
  PublishedClient client;
  PublishedClient engine;
};
Exchange begin_exchange(const RawEngine& raw, std::uint16_t port,
                        const std::string& request = kGet) {
  Exchange begun{PublishedClient(port), PublishedClient()};
  begun.client.send(request);
  begun.engine = raw.accept();
  EXPECT_EQ(begun.engine.read(request.size()), request);
  return begun;
}
void answer(const PublishedClient& engine, PublishedClient& client) {
  engine.send(kOk);
  EXPECT_EQ(client.read(kOk.size()), kOk);
}

bool is_done(const std::future<bool>& future) {
  return future.wait_for(seconds(0)) == std::future_status::ready;
}

std::string random_bytes(std::size_t size) {
  std::mt19937_64 random(4);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

class Publishing : public test::FdCounting {
 protected:
  Publishing() { std::signal(SIGPIPE, SIG_IGN); }
};

/// A publisher of an engine whose bytes the test sends.
class PublishedEngine : public Publishing {
 protected:
  Exchange exchange(const std::string& request = kGet) {
    return begin_exchange(raw_, publisher_.port(), request);
  }

  const RawEngine raw_;
  TestPublisher publisher_{raw_.target()};
};

TEST_F(Publishing, CarriesTenMebibytesBothWays) {
  const HttpEngine engine("A");
  TestPublisher publisher(engine.target());
  http::FetchOptions options;
  options.body = random_bytes(10 * base::kMiB);
  const http::Response response =
      http::fetch("POST", "http://" + local(publisher.port()) + "/", soon(), options);
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.body == options.body);
}

TEST_F(PublishedEngine, CarriesWhatIsNoHttpBothWaysAtOnce) {
  PublishedClient client(publisher_.port());
  const std::string up = "\x16\x03\n" + random_bytes(10 * base::kMiB);
  const std::string down = random_bytes(10 * base::kMiB + 7);
  std::thread sender([&] {
    EXPECT_TRUE(client.send(up));
    client.finish();
  });
  PublishedClient engine = raw_.accept();
  std::thread answerer([&] {
    EXPECT_TRUE(engine.send(down));
    engine.finish();
  });
  std::string got;
  std::thread receiver([&] { got = engine.read_to_end(); });
  EXPECT_TRUE(client.read_to_end() == down);
  for (std::thread* thread : {&sender, &answerer, &receiver}) thread->join();
  EXPECT_TRUE(got == up);
  EXPECT_EQ(engine.end(), 0);
  EXPECT_EQ(client.end(), 0);
}

TEST_F(Publishing, ReachesAnEngineOnAUnixSocket) {
  const test::TempDir folder;
  HttpEngine engine("unix");
  engine.listen(os::listen_unix(folder.path("engine.sock")));
  TestPublisher publisher(folder.path("engine.sock"));
  EXPECT_EQ(http::fetch("GET", "http://" + local(publisher.port()) + "/", soon()).body, "unix");
}

TEST_F(Publishing, WaitsForAnEngineWhoseQueueIsFull) {
  const test::TempDir folder;
  const std::string path = folder.path("engine.sock");
  const UniqueFd listener = os::listen_unix(path, 0600, 0);
  const UniqueFd before_us = os::connect_unix(path, soon());
  TestPublisher publisher(path);
  PublishedClient client(publisher.port());
  client.send(kGet);
  await([&] { return publisher.connections() == 1; });
  const UniqueFd first(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  pollfd ready{listener.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, soon().poll_timeout()), 1);
  PublishedClient engine(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  EXPECT_EQ(engine.read(kGet.size()), kGet);
}

TEST_F(PublishedEngine, PassesEveryPieceOnAtOnce) {
  PublishedClient client(publisher_.port());
  PublishedClient engine;
  for (const char& c : kGet) {
    client.send(std::string_view(&c, 1));
    if (&c == kGet.data()) engine = raw_.accept();
    EXPECT_EQ(engine.read(1), std::string(1, c));
  }
  engine.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  client.read_until("\r\n\r\n");
  for (int i = 0; i < 200; ++i) {
    const std::string token = "a\r\ndata: " + std::to_string(1000 + i) + "\r\n";
    engine.send(token);
    EXPECT_EQ(client.read(token.size()), token);
  }
  EXPECT_EQ(publisher_.busy(), 1U);
  engine.send("0\r\n\r\n");
  EXPECT_EQ(client.read(5), "0\r\n\r\n");
  EXPECT_EQ(publisher_.busy(), 0U);
}

TEST_F(PublishedEngine, KeepsHalfClose) {
  PublishedClient client(publisher_.port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  client.finish();
  PublishedClient engine = raw_.accept();
  EXPECT_EQ(engine.read_to_end(), "GET / HTTP/1.0\r\n\r\n");
  for (const char* part : {"HTTP/1.0 200 OK\r\n\r\n", "the whole ", "answer"}) {
    engine.send(part);
    EXPECT_EQ(client.read(std::string_view(part).size()), part);
  }
  engine.close();
  EXPECT_EQ(client.read_to_end(), "");
  EXPECT_EQ(client.end(), 0);
  await([&] { return publisher_.connections() == 0; });
}

TEST_F(PublishedEngine, TheEnginesEndReachesTheClient) {
  auto [client, engine] = exchange();
  engine.send("HTTP/1.1 200 OK\r\n\r\nuntil the end");
  engine.close();
  EXPECT_TRUE(client.read_to_end().ends_with("until the end"));
  EXPECT_EQ(client.end(), 0);
  client.close();
  await([&] { return publisher_.connections() == 0; });
  // The engine closes a connection that was idle for too long.
  client = PublishedClient(publisher_.port());
  client.send(kGet);
  engine = raw_.accept();
  engine.read(kGet.size());
  engine.send(kOk);
  engine.close();
  EXPECT_EQ(client.read_to_end(), kOk);
  EXPECT_EQ(client.end(), 0);
  EXPECT_EQ(publisher_.connections(), 0U);
}

TEST_F(PublishedEngine, PassesResetsOn) {
  auto [client, engine] = exchange();
  engine.reset();
  client.read_to_end();
  EXPECT_EQ(client.end(), ECONNRESET);
  client = PublishedClient(publisher_.port());
  client.send(kGet);
  engine = raw_.accept();
  engine.read(kGet.size());
  client.reset();
  engine.read_to_end();
  EXPECT_EQ(engine.end(), ECONNRESET);
  await([&] { return publisher_.connections() == 0; });
}

TEST_F(PublishedEngine, DeliversAnAnswerThatCameBeforeTheRequestsEnd) {
  auto [client, engine] = exchange("POST / HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n");
  const std::string refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
  engine.send(refusal);
  EXPECT_EQ(client.read(refusal.size()), refusal);
  engine.close();
  while (client.send(std::string(100000, 'x'))) {
  }
  await([&] { return publisher_.connections() == 0; });
}

TEST_F(Publishing, ResetsClientsOfADeadEngine) {
  const RawEngine dead(true);
  TestPublisher publisher(dead.target());
  testing::internal::CaptureStderr();
  for (int i = 0; i < 50; ++i) {
    PublishedClient client(publisher.port());
    client.send(kGet);
    client.read_to_end();
    EXPECT_EQ(client.end(), ECONNRESET);
  }
  EXPECT_EQ(publisher.connections(), 0U);
  // Logged at most once a second.
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.starts_with("fo: warning: connect to engine '" + dead.target() +
                               "': Connection refused\n"))
      << said;
  EXPECT_LT(std::count(said.begin(), said.end(), '\n'), 40) << said;
}

TEST_F(PublishedEngine, AClientThatSaysNothingNeedsNoEngine) {
  {
    const PublishedClient client(publisher_.port());
    await([&] { return publisher_.connections() == 1; });
    EXPECT_EQ(publisher_.busy(), 0U);
  }
  await([&] { return publisher_.connections() == 0; });
  EXPECT_FALSE(raw_.has_client(Deadline::after(seconds(0))));
}

TEST_F(PublishedEngine, AClientThatDoesNotReadHoldsTheEngineBack) {
  auto [client, engine] = exchange();
  std::size_t sent = 0;
  const std::string part = random_bytes(100000);
  pollfd writable{engine.fd(), POLLOUT, 0};
  while (sent < 256 * base::kMiB && ::poll(&writable, 1, 300) == 1) {
    const ssize_t count = ::send(engine.fd(), part.data(), part.size(), MSG_DONTWAIT);
    if (count > 0) sent += static_cast<std::size_t>(count);
  }
  EXPECT_LT(sent, 256 * base::kMiB);
  engine.close();
  EXPECT_EQ(client.read_to_end().size(), sent);
}

TEST_F(Publishing, IdleAndSlowClientsHoldNobodyUp) {
  const HttpEngine engine("A");
  TestPublisher publisher(engine.target());
  std::vector<PublishedClient> others;
  for (int i = 0; i < 150; ++i) {
    others.push_back(PublishedClient(publisher.port()));
    if (i % 3 == 1) others.back().send("GET / HTT");
    // This client never reads its answers.
    if (i % 3 == 2) others.back().send(kGet);
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(http::fetch("GET", "http://" + local(publisher.port()) + "/", soon()).body, "A");
  }
}

TEST_F(Publishing, WhoHasBeenIdleForLongestGivesWayWhenItIsFull) {
  const RawEngine raw;
  TestPublisher publisher(raw.target(), {.connections = 4});
  testing::internal::CaptureStderr();
  const auto come = [&](std::size_t connections) {
    PublishedClient peer(publisher.port());
    await([&] { return publisher.connections() == connections; });
    return peer;
  };
  PublishedClient busy = come(1);
  busy.send(kGet);
  PublishedClient busy_engine = raw.accept();
  busy_engine.read(kGet.size());
  PublishedClient asks = come(2);
  PublishedClient silent = come(3);
  // It connected before the silent one, but was active after it.
  asks.send(kGet);
  PublishedClient asks_engine = raw.accept();
  asks_engine.read(kGet.size());
  asks_engine.send(kOk);
  asks.read(kOk.size());
  PublishedClient last = come(4);
  const PublishedClient one_more(publisher.port());
  EXPECT_EQ(silent.read_to_end(), "");
  EXPECT_EQ(silent.end(), 0);
  const PublishedClient another(publisher.port());
  EXPECT_EQ(asks.read_to_end(), "");
  EXPECT_EQ(asks.end(), 0);
  EXPECT_EQ(publisher.connections(), 4U);
  last.send(kGet);
  PublishedClient last_engine = raw.accept();
  EXPECT_EQ(last_engine.read(kGet.size()), kGet);
  answer(busy_engine, busy);
  EXPECT_TRUE(testing::internal::GetCapturedStderr().starts_with(
      "fo: warning: keep an idle client on '127.0.0.1:0': "));
}

// Many such clients can neither keep others out nor cut their answers.
TEST_F(Publishing, ClientsThatHaveNotAskedYetGiveWayToThoseThatAsk) {
  const RawEngine raw;
  TestPublisher publisher(raw.target(), {.connections = 20});
  testing::internal::CaptureStderr();
  PublishedClient streams(publisher.port());
  streams.send(kGet);
  PublishedClient engine = raw.accept();
  engine.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
  streams.read_until("a\r\n");
  std::vector<PublishedClient> crowd;
  std::vector<PublishedClient> engines;
  for (const char* said : {"", "GET / HTT", "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf"}) {
    for (int i = 0; i < 40; ++i) {
      crowd.push_back(PublishedClient(publisher.port()));
      crowd.back().send(said);
      if (*said != '\0') engines.push_back(raw.accept());
    }
    await([&] { return publisher.connections() == 20; });
  }
  PublishedClient asks(publisher.port());
  asks.send(kGet);
  PublishedClient asked = raw.accept();
  EXPECT_EQ(asked.read(kGet.size()), kGet);
  answer(asked, asks);
  engine.send("0\r\n\r\n");
  EXPECT_EQ(streams.read(5), "0\r\n\r\n");
  // There are few log lines about them.
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 40) << log;
}

std::string body_of(const std::string& response) {
  const std::size_t end = response.find("\r\n\r\n");
  return end == std::string::npos ? "" : response.substr(end + 4);
}

TEST_F(Publishing, ARequestThatIsRefusedIsAnsweredAndTheEngineHearsNothingOfIt) {
  const RawEngine raw;
  TestPublisher publisher(raw.target(), kJudge);
  testing::internal::CaptureStderr();
  const std::string request = "POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
  for (const std::size_t size : {request.size(), std::size_t{10}, std::size_t{1}}) {
    PublishedClient client(publisher.port());
    for (std::size_t at = 0; at < request.size(); at += size) client.send(request.substr(at, size));
    PublishedClient engine = raw.accept();
    EXPECT_EQ(engine.read_to_end(), "");
    const std::string answer = client.read_to_end();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 403 Forbidden\r\n")) << answer;
    EXPECT_TRUE(body_of(answer).starts_with(R"({"error":{"code":403,"message":")")) << answer;
    EXPECT_EQ(client.end(), 0);
    client.close();
    await([&] { return publisher.connections() == 0; });
  }
  EXPECT_TRUE(testing::internal::GetCapturedStderr().starts_with(
      "fo: warning: refuse a request on '127.0.0.1:0': its path controls the engine\n"));
}

TEST_F(Publishing, WhatIsNoHttpIsRefusedWhereRequestsAreJudged) {
  const RawEngine raw;
  TestPublisher publisher(raw.target(), kJudge);
  testing::internal::CaptureStderr();
  PublishedClient client(publisher.port());
  client.send("\x16\x03\x01 hello\n" + random_bytes(base::kMiB));
  PublishedClient engine = raw.accept();
  EXPECT_EQ(engine.read_to_end(), "");
  EXPECT_TRUE(client.read_to_end().starts_with("HTTP/1.1 400 Bad Request\r\n"));
  testing::internal::GetCapturedStderr();
}

TEST_F(Publishing, RequestsBeforeOneThatIsRefusedAreAnsweredFirst) {
  const RawEngine raw;
  TestPublisher publisher(raw.target(), kJudge);
  testing::internal::CaptureStderr();
  PublishedClient client(publisher.port());
  client.send(kGet + kGet + "POST /no HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n");
  client.send(random_bytes(1000000));
  PublishedClient engine = raw.accept();
  EXPECT_EQ(engine.read(2 * kGet.size()), kGet + kGet);
  answer(engine, client);
  answer(engine, client);
  EXPECT_TRUE(client.read_to_end().starts_with("HTTP/1.1 403 "));
  EXPECT_EQ(client.end(), 0);
  EXPECT_EQ(engine.read_to_end(), "");
  testing::internal::GetCapturedStderr();
}

TEST_F(Publishing, AClientThatWasRefusedAndStaysIsCut) {
  const RawEngine raw;
  TestPublisher publisher(raw.target(), kJudge, {.refusal = milliseconds(20)});
  testing::internal::CaptureStderr();
  PublishedClient client(publisher.port());
  client.send("GET /no HTTP/1.1\r\n\r\n");
  await([&] { return is_end_received(client); });
  await([&] { return publisher.connections() == 0; });
  EXPECT_TRUE(client.read_to_end().starts_with("HTTP/1.1 403 "));
  testing::internal::GetCapturedStderr();
}

TEST_F(Publishing, RequestsThatPassTheJudgeAreCarriedAsTheyCame) {
  const RawEngine raw;
  TestPublisher publisher(raw.target(), kJudge);
  PublishedClient client(publisher.port());
  client.send("POST / HTTP/1.1\r\nTrans");
  PublishedClient engine = raw.accept();
  client.send("fer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(engine.read_until("\r\n\r\n"), "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string big = random_bytes(5 * base::kMiB);
  std::thread sender([&] { client.send("500000\r\n" + big + "\r\n0\r\n\r\n"); });
  EXPECT_TRUE(engine.read(8 + big.size() + 7) == "500000\r\n" + big + "\r\n0\r\n\r\n");
  sender.join();
  answer(engine, client);
  // The client's last request before it ends its stream; the answer ends with the connection.
  client.send("GET / HTTP/1.0\r\n\r\nGET /no HTTP/1.1\r\n\r\n");
  client.finish();
  EXPECT_EQ(engine.read_to_end(), "GET / HTTP/1.0\r\n\r\n");
  engine.send("HTTP/1.0 200 OK\r\n\r\nto the end");
  engine.close();
  EXPECT_EQ(client.read_to_end(), "HTTP/1.0 200 OK\r\n\r\nto the end");
}

TEST_F(Publishing, ADrainWaitsForAHeadThatHasBegunAndNotForARefusal) {
  const RawEngine raw;
  TestPublisher publisher(raw.target(), kJudge);
  testing::internal::CaptureStderr();
  PublishedClient client(publisher.port());
  client.send(kGet.substr(0, 10));
  PublishedClient engine = raw.accept();
  PublishedClient refused(publisher.port());
  refused.send("GET /no HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(refused.read_to_end().starts_with("HTTP/1.1 403 "));
  std::future<bool> drained = publisher.drain();
  refused.close();
  EXPECT_FALSE(is_done(drained));
  client.send(kGet.substr(10) + kGet);
  EXPECT_EQ(engine.read(kGet.size()), kGet);
  answer(engine, client);
  EXPECT_TRUE(drained.get());
  EXPECT_EQ(engine.read_to_end(), "");
  const HttpEngine next("B");
  TestPublisher heir(next.target(), publisher.take());
  EXPECT_TRUE(client.read_until("\r\n\r\nB").ends_with("\r\n\r\nB"));
  testing::internal::GetCapturedStderr();
}

TEST_F(Publishing, ClientsWaitWhenAllOthersAreBusy) {
  const RawEngine raw;
  TestPublisher publisher(raw.target(), {.connections = 1});
  auto [busy, engine] = begin_exchange(raw, publisher.port());
  testing::internal::CaptureStderr();
  PublishedClient waits(publisher.port());
  waits.send(kGet);
  answer(engine, busy);
  engine = raw.accept();
  EXPECT_EQ(engine.read(kGet.size()), kGet);
  EXPECT_EQ(busy.read_to_end(), "");
  EXPECT_EQ(busy.end(), 0);
  testing::internal::GetCapturedStderr();
}

TEST_F(Publishing, ASlowReaderGetsItsWholeAnswer) {
  const RawEngine raw;
  TestPublisher publisher(raw.target(), {.half_open = milliseconds(20)});
  PublishedClient client;
  const int few = 4096;
  ASSERT_EQ(::setsockopt(client.fd(), SOL_SOCKET, SO_RCVBUF, &few, sizeof few), 0);
  client.connect(publisher.port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  PublishedClient engine = raw.accept();
  engine.read_until("\r\n\r\n");
  const std::string answer = "HTTP/1.0 200 OK\r\n\r\n" + random_bytes(30000);
  engine.send(answer);
  engine.close();
  await([&] { return publisher.connections() == 0; });
  EXPECT_TRUE(client.read_to_end() == answer);
  EXPECT_EQ(client.end(), 0);
}

TEST_F(Publishing, AddressesThatCannotBeServedAreErrors) {
  boost::asio::io_context io;
  const auto make = [&](const std::string& address, const std::string& target) {
    return test::failure_of([&] { Publisher(io.get_executor(), address, target); }).status;
  };
  EXPECT_EQ(make("x", "127.0.0.1:1"), ExitStatus::kUsage);
  EXPECT_EQ(make("127.0.0.1:1", "somewhere:80"), ExitStatus::kUsage);
  EXPECT_EQ(make("127.0.0.1:1", "/" + std::string(200, 'x')), ExitStatus::kUsage);
  TestPublisher publisher("127.0.0.1:1");
  Publisher second(io.get_executor(), local(publisher.port()), "127.0.0.1:1");
  const test::Failure failure = test::failure_of([&] { second.start(); });
  EXPECT_EQ(failure.status, ExitStatus::kCannotCreate);
  EXPECT_EQ(failure.message, "listen on '" + local(publisher.port()) + "': Address already in use");
  EXPECT_EQ(second.port(), 0U);
}

TEST_F(Publishing, OutlivesAWantOfDescriptors) {
  if (test::kHasSanitizers) FO_SKIP("release", test::kSanitizersOpenPipes);
  const HttpEngine engine("A");
  TestPublisher publisher(engine.target());
  const std::uint16_t port = publisher.port();
  std::vector<UniqueFd> clients(8);
  for (UniqueFd& fd : clients) fd.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    const test::FewDescriptors few(3);
    for (const UniqueFd& fd : clients) EXPECT_EQ(test::try_connect(fd.get(), port), 0);
    await([&] { return publisher.connections() > 0; });
    EXPECT_LT(publisher.connections(), clients.size());
  }
  for (UniqueFd& fd : clients) {
    PublishedClient client(std::move(fd));
    client.send(kGet);
    EXPECT_TRUE(client.read_until("\r\n\r\nA").ends_with("\r\n\r\nA"));
  }
}

TEST_F(Publishing, WhoHasAskedWaitsWhileDescriptorsRunOut) {
  if (test::kHasSanitizers) FO_SKIP("release", test::kSanitizersOpenPipes);
  const RawEngine raw;
  TestPublisher publisher(raw.target());
  const std::uint16_t port = publisher.port();
  PublishedClient client(port);
  await([&] { return publisher.connections() == 1; });
  PublishedClient late;
  testing::internal::CaptureStderr();
  {
    const test::FewDescriptors none;
    client.send(kGet);
    await([&] { return publisher.busy() == 1; });
    late.connect(port);
    late.send(kGet);
  }
  for (int i = 0; i < 2; ++i) {
    PublishedClient engine = raw.accept();
    EXPECT_EQ(engine.read(kGet.size()), kGet);
    engine.send(kOk);
    engine.close();
  }
  EXPECT_EQ(client.read(kOk.size()), kOk);
  EXPECT_EQ(late.read(kOk.size()), kOk);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.starts_with("fo: warning: connect to engine '" + raw.target() +
                               "': Too many open files\n"))
      << said;
}

TEST_F(Publishing, WaitsForDescriptorsNoLongerThanForTheEngine) {
  if (test::kHasSanitizers) FO_SKIP("release", test::kSanitizersOpenPipes);
  const RawEngine raw;
  TestPublisher publisher(raw.target(), {.connect = milliseconds(50)});
  PublishedClient client(publisher.port());
  await([&] { return publisher.connections() == 1; });
  testing::internal::CaptureStderr();
  {
    const test::FewDescriptors none;
    client.send(kGet);
    client.read_to_end();
    EXPECT_EQ(client.end(), ECONNRESET);
  }
  EXPECT_EQ(publisher.connections(), 0U);
  testing::internal::GetCapturedStderr();
}

TEST_F(Publishing, DrainingLeavesIdleClientsConnected) {
  const HttpEngine first("A");
  TestPublisher publisher(first.target());
  PublishedClient silent(publisher.port());
  PublishedClient idle(publisher.port());
  idle.send(kGet);
  idle.read_until("\r\n\r\nA");
  await([&] { return publisher.connections() == 2; });
  EXPECT_TRUE(publisher.drain().get());
  // The request stays in the kernel.
  idle.send(kGet);
  PublishedClient late(publisher.port());
  late.send(kGet);
  PublishedSockets left = publisher.take();
  EXPECT_TRUE(left.listener);
  EXPECT_EQ(left.clients.size(), 2U);
  EXPECT_EQ(publisher.connections(), 0U);
  EXPECT_EQ(publisher.port(), 0U);
  const HttpEngine next("B");
  TestPublisher heir(next.target(), std::move(left));
  silent.send(kGet);
  for (PublishedClient* client : {&silent, &idle, &late}) {
    EXPECT_TRUE(client->read_until("\r\n\r\nB").ends_with("\r\n\r\nB"));
  }
}

TEST_F(Publishing, ResumesAfterADrain) {
  HttpEngine engine("A");
  TestPublisher publisher(engine.target());
  PublishedClient client(publisher.port());
  for (int i = 0; i < 5; ++i) {
    client.send(kGet);
    client.read_until("\r\n\r\nA");
    EXPECT_TRUE(publisher.drain().get());
    await([&] { return engine.connections() == 0; });
    client.send(kGet);
    PublishedClient late(publisher.port());
    late.send(kGet);
    publisher.resume();
    EXPECT_TRUE(client.read_until("\r\n\r\nA").ends_with("\r\n\r\nA"));
    EXPECT_TRUE(late.read_until("\r\n\r\nA").ends_with("\r\n\r\nA"));
  }
}

TEST_F(PublishedEngine, DrainingWaitsForStreams) {
  auto [client, engine] = exchange();
  engine.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  client.read_until("\r\n\r\n");
  const std::future<bool> drained = publisher_.drain();
  for (int i = 0; i < 20; ++i) {
    engine.send("5\r\ntoken\r\n");
    EXPECT_EQ(client.read(10), "5\r\ntoken\r\n");
    EXPECT_FALSE(is_done(drained));
  }
  engine.send("0\r\n\r\n");
  EXPECT_EQ(client.read(5), "0\r\n\r\n");
  drained.wait();
  EXPECT_EQ(engine.read_to_end(), "");  // the connection was detached from the engine
  EXPECT_EQ(engine.end(), 0);
  EXPECT_EQ(publisher_.take().clients.size(), 1U);
}

TEST_F(PublishedEngine, DrainingFinishesAnUploadAndLeavesTheNextRequest) {
  PublishedClient client(publisher_.port());
  const std::string head = "POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n";
  const std::string body = random_bytes(200000);
  client.send(head + body.substr(0, 100000));
  PublishedClient engine = raw_.accept();
  EXPECT_TRUE(engine.read(head.size() + 100000) == head + body.substr(0, 100000));
  std::future<bool> drained = publisher_.drain();
  client.send(body.substr(100000) + kGet + kGet);
  EXPECT_TRUE(engine.read(100000) == body.substr(100000));
  EXPECT_FALSE(is_done(drained));
  answer(engine, client);
  EXPECT_TRUE(drained.get());
  EXPECT_EQ(engine.read_to_end(), "");
  const RawEngine next;
  TestPublisher heir(next.target(), publisher_.take());
  engine = next.accept();
  EXPECT_EQ(engine.read(2 * kGet.size()), kGet + kGet);
}

TEST_F(PublishedEngine, DrainingFinishesPipelinedRequests) {
  PublishedClient client(publisher_.port());
  client.send(kGet + kGet + kGet);
  PublishedClient engine = raw_.accept();
  engine.read(3 * kGet.size());
  std::future<bool> drained = publisher_.drain();
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(is_done(drained));
    answer(engine, client);
  }
  EXPECT_TRUE(drained.get());
  EXPECT_EQ(publisher_.take().clients.size(), 1U);
}

TEST_F(PublishedEngine, DrainingEndsWithConnectionsThatEndWithTheirAnswer) {
  auto [client, engine] = exchange("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  std::future<bool> drained = publisher_.drain();
  answer(engine, client);
  EXPECT_FALSE(is_done(drained));
  engine.close();
  EXPECT_EQ(client.read_to_end(), "");
  EXPECT_EQ(client.end(), 0);
  EXPECT_TRUE(drained.get());
  EXPECT_TRUE(publisher_.take().clients.empty());
}

TEST_F(PublishedEngine, TheDeadlineCutsWhatIsInFlight) {
  PublishedClient idle(publisher_.port());
  auto [client, engine] = exchange();
  engine.send("HTTP/1.1 101 Switching Protocols\r\n\r\n");
  client.read_until("\r\n\r\n");
  await([&] { return publisher_.connections() == 2; });
  EXPECT_FALSE(publisher_.drain(Deadline::after(milliseconds(50))).get());
  client.read_to_end();
  EXPECT_EQ(client.end(), ECONNRESET);
  engine.read_to_end();
  EXPECT_EQ(engine.end(), ECONNRESET);
  EXPECT_EQ(publisher_.take().clients.size(), 1U);
}

TEST_F(PublishedEngine, ASecondDrainCutsNothing) {
  auto [client, engine] = exchange();
  std::future<bool> first = publisher_.drain();
  std::future<bool> second = publisher_.drain(Deadline::never());
  EXPECT_FALSE(is_done(first));
  EXPECT_FALSE(is_done(second));
  EXPECT_EQ(publisher_.busy(), 1U);
  answer(engine, client);
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
  EXPECT_EQ(publisher_.take().clients.size(), 1U);
}

TEST_F(PublishedEngine, TheFirstDeadlineCutsForAllDrains) {
  auto [client, engine] = exchange();
  std::future<bool> first = publisher_.drain(Deadline::never());
  EXPECT_FALSE(publisher_.drain(Deadline::after(milliseconds(20))).get());
  EXPECT_FALSE(first.get());
  client.read_to_end();
  EXPECT_EQ(client.end(), ECONNRESET);
}

TEST_F(PublishedEngine, DrainingDoesNotWaitForClientsThatStayAfterTheirLastAnswer) {
  for (const char* request :
       {"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"}) {
    auto [client, engine] = exchange(request);
    engine.send(kOk);
    engine.close();
    EXPECT_EQ(client.read_to_end(), kOk);
    EXPECT_EQ(publisher_.connections(), 1U);
    EXPECT_TRUE(publisher_.drain(Deadline::after(seconds(5))).get());
    EXPECT_EQ(publisher_.connections(), 0U);
    client.finish();
    EXPECT_EQ(client.read_to_end(), "");
    EXPECT_EQ(client.end(), 0);
    publisher_.resume();
  }
}

TEST_F(PublishedEngine, DrainingForNobodyClosesWhatIsIdle) {
  const std::uint16_t port = publisher_.port();
  PublishedClient silent(port);
  auto [idle, idle_engine] = exchange();
  idle_engine.send(kOk);
  idle.read(kOk.size());
  auto [client, engine] = exchange();
  await([&] { return publisher_.connections() == 3 && publisher_.busy() == 1; });
  std::future<bool> drained = publisher_.drain(soon(), Successor::kNone);
  for (PublishedClient* closed : {&silent, &idle, &idle_engine}) {
    EXPECT_EQ(closed->read_to_end(), "");
    EXPECT_EQ(closed->end(), 0);
  }
  const UniqueFd late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(test::try_connect(late.get(), port), ECONNREFUSED);
  EXPECT_FALSE(is_done(drained));
  // The client's next request is not answered, and does not truncate this answer.
  client.send(kGet);
  engine.send(kOk);
  EXPECT_EQ(client.read_to_end(), kOk);
  EXPECT_EQ(client.end(), 0);
  EXPECT_TRUE(drained.get());
  const PublishedSockets left = publisher_.take();
  EXPECT_FALSE(left.listener);
  EXPECT_TRUE(left.clients.empty());
}

TEST_F(Publishing, DrainingForNobodyAnswersWhoHasAskedBefore) {
  const test::TempDir folder;
  const std::string path = folder.path("engine.sock");
  const UniqueFd listener = os::listen_unix(path, 0600, 0);
  const UniqueFd before_us = os::connect_unix(path, soon());
  TestPublisher publisher(path);
  PublishedClient client(publisher.port());
  client.send(kGet);
  await([&] { return publisher.busy() == 1; });
  std::future<bool> drained = publisher.drain(soon(), Successor::kNone);
  const UniqueFd first(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  pollfd ready{listener.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, soon().poll_timeout()), 1);
  PublishedClient engine(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  EXPECT_EQ(engine.read(kGet.size()), kGet);
  engine.send(kOk);
  EXPECT_EQ(client.read_to_end(), kOk);
  EXPECT_EQ(client.end(), 0);
  EXPECT_TRUE(drained.get());
}

// A switchover that becomes an end.
TEST_F(PublishedEngine, ADrainForNobodyClosesWhatWasKeptForASuccessor) {
  PublishedClient idle(publisher_.port());
  auto [client, engine] = exchange();
  await([&] { return publisher_.connections() == 2; });
  std::future<bool> first = publisher_.drain();
  idle.send(kGet);
  std::future<bool> second = publisher_.drain(soon(), Successor::kNone);
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_EQ(idle.end(), 0);
  engine.send(kOk);
  EXPECT_EQ(client.read_to_end(), kOk);
  EXPECT_EQ(client.end(), 0);
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
}

TEST_F(Publishing, DropsDrainedClientsThatLeave) {
  const HttpEngine engine("A");
  TestPublisher publisher(engine.target());
  PublishedClient leaves(publisher.port());
  PublishedClient asks_and_leaves(publisher.port());
  await([&] { return publisher.connections() == 2; });
  EXPECT_TRUE(publisher.drain().get());
  leaves.finish();
  await([&] { return is_end_acknowledged(leaves); });
  asks_and_leaves.send(kGet);
  asks_and_leaves.finish();
  PublishedSockets left = publisher.take();
  EXPECT_EQ(left.clients.size(), 1U);
  TestPublisher heir(engine.target(), std::move(left));
  EXPECT_TRUE(asks_and_leaves.read_to_end().ends_with("\r\n\r\nA"));
  await([&] { return heir.connections() == 0; });
}

TEST_F(Publishing, DestroyingItCutsEverything) {
  const RawEngine raw;
  auto publisher = std::make_unique<TestPublisher>(raw.target());
  PublishedClient idle(publisher->port());
  PublishedClient client(publisher->port());
  client.send(kGet);
  PublishedClient engine = raw.accept();
  await([&] { return publisher->connections() == 2 && publisher->busy() == 1; });
  publisher.reset();
  client.read_to_end();
  EXPECT_EQ(client.end(), ECONNRESET);
  idle.read_to_end();
  EXPECT_EQ(idle.end(), 0);
}

// Repeated handovers under load: no request fails.
TEST_F(Publishing, HandsOverWithoutAFailedRequest) {
  const test::TempDir folder;
  const HttpEngine engines[] = {HttpEngine("A"), HttpEngine("B")};
  auto publisher = std::make_unique<TestPublisher>(engines[0].target());
  const std::uint16_t port = publisher->port();
  std::atomic<bool> ended = false;
  std::atomic<int> answers[2] = {0, 0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      PublishedClient client(port);
      while (!ended) {
        // One client reconnects for each request, one sends two requests at a time.
        if (i == 0) client = PublishedClient(port);
        for (int asked = 0; asked < (i == 1 ? 2 : 1); ++asked) client.send(kGet);
        for (int asked = 0; asked < (i == 1 ? 2 : 1); ++asked) {
          const std::string head = client.read_until("\r\n\r\n");
          ASSERT_TRUE(head.starts_with("HTTP/1.1 200 OK\r\n")) << head;
          const std::string name = client.read(1);
          ASSERT_TRUE(name == "A" || name == "B") << name;
          ++answers[name == "B"];
        }
      }
    });
  }
  for (int round = 1; round <= 20; ++round) {
    const int before = answers[(round + 1) % 2];
    await([&] { return answers[(round + 1) % 2] >= before + 100; });
    EXPECT_TRUE(publisher->drain().get());
    PublishedSockets left = publisher->take();
    const std::string path = folder.path("handover.sock");
    auto given = publisher->run(offer_sockets(os::open_server_socket(path), left, soon()));
    boost::asio::io_context io;
    PublishedSockets taken;
    await([&] {
      taken = loop::run_to_end(io, take_sockets(path, soon()));
      return taken.listener.valid();
    });
    EXPECT_TRUE(given.get());
    publisher = std::make_unique<TestPublisher>(engines[round % 2].target(), std::move(taken));
  }
  await([&] { return answers[0] >= 1000 && answers[1] >= 1000; });
  ended = true;
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace fo::engine
