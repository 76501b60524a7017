#include "http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <list>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "http/client.h"
#include "os/pause.h"
#include "os/socket/unix_socket.h"
#include "support.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/inherited_fds.h"
#include "support/must_run.h"
#include "support/sanitizers.h"
#include "support/temp_dir.h"

namespace fo::http::test {
namespace {

using fo::test::inherited_fds;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Handler echo() {
  return [](const Request& request, Reply& reply) -> awaitable<void> {
    reply.answer(
        {200, "text/plain", request.method + " " + request.target + " " + request.body, {}});
    co_return;
  };
}

/// Its handler answers once the gate is open.
class Gate {
 public:
  Handler handler() {
    return [this](const Request&, Reply& reply) -> awaitable<void> {
      const auto executor = co_await boost::asio::this_coro::executor;
      boost::asio::steady_timer poll(executor);
      entered_.set_value();
      while (opened_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
        poll.expires_after(std::chrono::milliseconds(1));
        co_await poll.async_wait(boost::asio::use_awaitable);
      }
      reply.answer({200, "text/plain", "through", {}});
    };
  }
  void wait_until_entered() { entered_.get_future().get(); }
  void open() { open_.set_value(); }

 private:
  std::promise<void> entered_;
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
};

std::string get(const std::string& target, const std::string& more = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + more + "\r\n";
}

TEST(HttpServer, GivesTheHandlerTheWholeRequest) {
  Request seen;
  TestServer server([&](const Request& request, Reply& reply) -> awaitable<void> {
    seen = request;
    reply.answer({201, "text/plain", "made", {{"X-One", "1"}, {"X-Bad", "a\r\nb"}}});
    co_return;
  });
  FetchOptions options;
  options.body = std::string(100000, 'b');
  options.headers = {{"X-Two", "2"}};
  const Response response = fetch("POST", server.url("/p%20q?a=1&a=2"), soon(), options);
  EXPECT_EQ(response.status, 201);
  EXPECT_EQ(response.body, "made");
  EXPECT_EQ(response.content_type, "text/plain");
  EXPECT_EQ(response.header("x-one"), "1");
  EXPECT_EQ(response.header("x-bad"), std::nullopt);
  EXPECT_EQ(seen.method, "POST");
  EXPECT_EQ(seen.path, "/p q");
  EXPECT_EQ(seen.query.size(), 2U);
  EXPECT_EQ(seen.parameter("a"), "1");
  EXPECT_EQ(seen.header("X-TWO"), "2");
  EXPECT_EQ(seen.body, options.body);
}

TEST(HttpServer, KnowsTheAddressesOfItsClients) {
  TestServer server([](const Request&, Reply& reply) -> awaitable<void> {
    reply.answer({200, "text/plain", "client " + reply.client_host(), {}});
    co_return;
  });
  EXPECT_EQ(fetch("GET", server.url(), soon()).body, "client 127.0.0.1");
}

TEST(HttpServer, KeepsConnectionsAlive) {
  TestServer server(echo());
  RawClient client(server.port());
  client.send(get("/1"));
  EXPECT_THAT(client.read_until("GET /1 "), HasSubstr("Connection: keep-alive"));
  client.send(get("/2", "Connection: close\r\n"));
  const std::string last = client.read_to_end();
  EXPECT_THAT(last, HasSubstr("Connection: close"));
  EXPECT_THAT(last, EndsWith("GET /2 "));
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  TestServer server(echo());
  RawClient client(server.port());
  std::string requests;
  for (int i = 0; i < 50; ++i) requests += get("/" + std::to_string(i));
  client.send(requests);
  client.finish();
  const std::string answers = client.read_to_end();
  std::size_t at = 0;
  for (int i = 0; i < 50; ++i) {
    at = answers.find("GET /" + std::to_string(i) + " ", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
}

TEST(HttpServer, AnswersRequestsThatComeByteByByte) {
  TestServer server(echo());
  RawClient client(server.port());
  for (const char c :
       "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n") {
    if (c != '\0') client.send(std::string_view(&c, 1));
  }
  EXPECT_THAT(client.read_until("POST / abc"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST(HttpServer, AnswersAClientThatHasShutItsSide) {
  TestServer server(echo());
  RawClient client(server.port());
  client.send(get("/"));
  client.finish();
  EXPECT_THAT(client.read_to_end(), EndsWith("GET / "));
}

TEST(HttpServer, HeadGetsNoBody) {
  TestServer server(echo());
  RawClient client(server.port());
  client.send("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string answer = client.read_to_end();
  EXPECT_THAT(answer, HasSubstr("Content-Length: 7\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST(HttpServer, HeadGetsTheLengthThatTheHandlerKnows) {
  TestServer server([](const Request& request, Reply& reply) -> awaitable<void> {
    Response response{200, "a/b", "", {}};
    if (request.path == "/known") response.headers = {{"Content-Length", "55"}};
    reply.answer(std::move(response));
    co_return;
  });
  RawClient client(server.port());
  client.send("HEAD /known HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 55\r\n"
            "Connection: keep-alive\r\n\r\n");
  client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nConnection: keep-alive\r\n\r\n");
}

TEST(HttpServer, OldClientsAreClosedOn) {
  TestServer server(echo());
  RawClient client(server.port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.read_to_end(), EndsWith("GET / "));
}

TEST(HttpServer, SendsContinueWhenAskedTo) {
  TestServer server(echo());
  RawClient client(server.port());
  client.send("PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  client.read_until("HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  client.read_until("PUT / ok");
  // HTTP/1.0 has no such answers.
  RawClient old(server.port());
  old.send("PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok");
  EXPECT_THAT(old.read_to_end(), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST(HttpServer, TooLongHeadersAre431) {
  TestServer server(echo());
  RawClient client(server.port());
  client.send(get("/", "X: " + std::string(20000, 'x') + "\r\n"));
  EXPECT_THAT(client.read_to_end(), StartsWith("HTTP/1.1 431 "));
  RawClient endless(server.port());
  endless.send(std::string(1 << 20, 'G'));
  EXPECT_THAT(endless.read_to_end(), StartsWith("HTTP/1.1 4"));
}

TEST(HttpServer, HeadersUpToTheLimitAreRead) {
  TestServer server(echo());
  RawClient client(server.port());
  client.send(get("/", "X: " + std::string(16 * 1024 - 64, 'x') + "\r\n"));
  client.read_until("GET / ");
}

TEST(HttpServer, TooLongBodiesAre413) {
  TestServer server(echo(), {.body_bytes = 1000});
  RawClient declared(server.port());
  declared.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551615\r\n\r\n");
  EXPECT_THAT(declared.read_to_end(), StartsWith("HTTP/1.1 413 "));
  RawClient chunked(server.port());
  chunked.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
               std::string(1001, 'x'));
  EXPECT_THAT(chunked.read_to_end(), StartsWith("HTTP/1.1 413 "));
  RawClient huge(server.port());
  huge.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n");
  EXPECT_THAT(huge.read_to_end(), StartsWith("HTTP/1.1 4"));
}

TEST(HttpServer, TheBodiesOfAllRequestsHaveALimitTogether) {
  ServerLimits limits;
  limits.all_bodies = 1000;
  TestServer server(echo(), limits);
  FetchOptions options;
  options.body = std::string(600, 'x');
  const auto post = [&] { return fetch("POST", server.url(), soon(), options); };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post().status, 200);
  RawClient slow(server.port());
  slow.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 501\r\n\r\n" + std::string(500, 'x'));
  // The server may not have read it yet.
  const base::Deadline deadline = soon();
  int status = post().status;
  while (status == 200 && !deadline.expired()) status = post().status;
  EXPECT_EQ(status, 503);
  // One that is refused does not count, although its client has not closed the connection.
  RawClient refused(server.port());
  refused.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 600\r\n\r\n" + std::string(600, 'x'));
  EXPECT_THAT(refused.read_until("all clients"), HasSubstr("Retry-After: 1"));
  EXPECT_EQ(fetch("GET", server.url(), soon()).status, 200);
  slow.send("x");
  slow.read_until("POST / ");
  slow.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  slow.read_until("GET / ");
  EXPECT_EQ(post().status, 200);
}

TEST(HttpServer, TheAnswerToATooLongBodySurvivesTheBody) {
  TestServer server(echo(), {.body_bytes = 1000});
  FetchOptions options;
  options.body = std::string(8 << 20, 'x');
  EXPECT_EQ(fetch("POST", server.url(), soon(), options).status, 413);
}

TEST(HttpServer, WhatIsNotHttpIs400) {
  TestServer server(echo());
  for (const char* text :
       {"\r\n\x01\x02\x03\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nbad\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET x HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    RawClient client(server.port());
    client.send(text);
    const std::string answer = client.read_to_end();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 ")) << text;
    EXPECT_THAT(answer, HasSubstr("invalid_request_error")) << text;
  }
  EXPECT_EQ(fetch("GET", server.url(), soon()).status, 200);
  RawClient client(server.port());
  client.send("HEAD x HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.read_to_end(), AllOf(StartsWith("HTTP/1.1 400 "), EndsWith("\r\n\r\n")));
}

TEST(HttpServer, ItsOwnErrorsCanBeAnsweredInAnotherFormat) {
  const ServerLimits limits{.body_bytes = 1000, .all_bodies = 600};
  TestServer server(echo(), limits, [](const EarlyError& error) -> Response {
    const bool is_busy = error.retry_after.has_value();
    EXPECT_EQ(error.request.body, "");
    return {error.status,
            "text/plain",
            std::string(error.request.header("x-request-id").value_or("none")) +
                (is_busy ? ", busy" : ""),
            {{"X-Own", "1"}}};
  });
  const std::string id = "X-Request-Id: a\r\n";
  const std::string post = "POST / HTTP/1.1\r\nHost: x\r\n" + id;
  const std::string chunks = post + "Transfer-Encoding: chunked\r\n\r\n";
  const struct {
    std::string text;
    const char* status;
    const char* body;
  } cases[] = {
      {"GET / HTTP/1.1\r\nHost: x\r\n" + id + "bad\r\n\r\n", "400", "none"},
      {post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "400", "none"},
      {get("/", id + "X: " + std::string(20000, 'x') + "\r\n"), "431", "none"},
      {"GET x HTTP/1.1\r\nHost: x\r\n" + id + "\r\n", "400", "a"},
      {post + "Content-Length: 1001\r\n\r\n", "413", "a"},
      {chunks + "3e9\r\n" + std::string(1001, 'x'), "413", "a"},
      {chunks + "1\r\nx\r\nzz\r\n", "400", "a"},
      {post + "Content-Length: 700\r\n\r\n" + std::string(700, 'x'), "503", "a, busy"},
  };
  for (const auto& [text, status, body] : cases) {
    RawClient client(server.port());
    client.send(text);
    const std::string answer = client.read_to_end();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 " + std::string(status))) << text;
    EXPECT_THAT(answer, HasSubstr("X-Own: 1\r\n")) << text;
    EXPECT_THAT(answer, EndsWith("\r\n\r\n" + std::string(body))) << text;
  }
}

TEST(HttpServer, ARequestCanBeRefusedBeforeItsBodyIsRead) {
  const HeadCheck check = [](const Request& head) -> std::optional<Response> {
    EXPECT_EQ(head.body, "");
    if (head.header("Authorization") == "a" && head.path == "/p") return std::nullopt;
    return Response{401, "text/plain", "no key", {{"X-Own", "1"}}};
  };
  TestServer server(echo(), {}, early_response, check);
  for (const std::string more : {"", "Expect: 100-continue\r\n", "Authorization: b\r\n"}) {
    RawClient client(server.port());
    client.send("POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n" + more + "\r\n");
    const std::string answer = client.read_to_end();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 Unauthorized\r\n")) << more;
    EXPECT_THAT(answer, HasSubstr("X-Own: 1\r\nConnection: close\r\n")) << more;
    EXPECT_THAT(answer, EndsWith("no key")) << more;
  }
  // A client that sends all of its body gets the answer, too.
  FetchOptions options;
  options.body = std::string(8 << 20, 'x');
  EXPECT_EQ(fetch("POST", server.url("/p"), soon(), options).status, 401);
  RawClient client(server.port());
  client.send(get("/p"));
  client.read_until("GET /p ");  // without a body, the handler decides
  const std::string head = "POST /p?q HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\n";
  client.send(head + "Expect: 100-continue\r\nContent-Length: 1\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("y");
  EXPECT_THAT(client.read_until("POST /p?q y"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST(HttpServer, ARequestCutShortEndsItsConnectionOnly) {
  TestServer server(echo());
  const std::string whole = "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
  for (std::size_t length = 0; length < whole.size(); ++length) {
    RawClient client(server.port());
    client.send(whole.substr(0, length));
    client.finish();
    EXPECT_THAT(client.read_to_end(), Not(HasSubstr("200 OK"))) << length;
  }
  EXPECT_EQ(fetch("GET", server.url(), soon()).status, 200);
}

TEST(HttpServer, SlowHeadersAreCutOff) {
  TestServer server(echo(), {.header_timeout = std::chrono::milliseconds(20)});
  RawClient client(server.port());
  client.send("GET / HT");
  EXPECT_EQ(client.read_to_end(), "");
}

TEST(HttpServer, SlowBodiesAreCutOff) {
  TestServer server(echo(), {.body_timeout = std::chrono::milliseconds(20)});
  RawClient client(server.port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel");
  EXPECT_EQ(client.read_to_end(), "");
}

TEST(HttpServer, IdleConnectionsAreClosed) {
  TestServer server(echo(), {.idle_timeout = std::chrono::milliseconds(20)});
  RawClient fresh(server.port());
  EXPECT_EQ(fresh.read_to_end(), "");
  RawClient used(server.port());
  used.send(get("/"));
  EXPECT_THAT(used.read_to_end(), EndsWith("GET / "));
}

TEST(HttpServer, AClientThatDoesNotReadIsCutOff) {
  const ServerLimits limits{.write_timeout = std::chrono::milliseconds(20)};
  std::promise<base::ExitStatus> failure;
  TestServer server(
      [&](const Request&, Reply& reply) -> awaitable<void> {
        const std::string piece(1 << 20, 'x');
        try {
          co_await reply.begin(200, "text/plain");
          for (;;) co_await reply.write(piece);
        } catch (const base::Error& error) {
          failure.set_value(error.status());
          throw;
        }
      },
      limits);
  RawClient client(server.port());
  client.send(get("/"));
  EXPECT_EQ(failure.get_future().get(), base::ExitStatus::kUnavailable);
}

TEST(HttpServer, AClientThatReadsSlowlyGetsAllOfALongAnswer) {
  const base::Duration timeout = std::chrono::seconds(1);
  const std::string body(std::size_t{16} << 20, 'x');
  TestServer server(
      [&](const Request&, Reply& reply) -> awaitable<void> {
        reply.answer({200, "text/plain", body, {}});
        co_return;
      },
      {.write_timeout = timeout});
  Listener listener = small_listener();
  server.listen(std::move(listener.fd));
  RawClient client;
  limit_buffers(client.fd());
  client.connect(listener.port);
  client.send(get("/"));
  // It reads half of the answer in pieces, for longer than the timeout in all.
  constexpr int kPieces = 100;
  std::size_t count = 0;
  for (int i = 0; i < kPieces; ++i) {
    count += client.read(body.size() / 2 / kPieces).size();
    os::pause_for(timeout * 3 / 2 / kPieces);
  }
  count += client.read(body.size() - count).size();
  EXPECT_EQ(count, body.size());
}

TEST(HttpServer, HundredsOfIdleAndSlowConnectionsDisturbNobody) {
  TestServer server(echo());
  std::list<RawClient> idle;
  for (int i = 0; i < 400; ++i) {
    idle.emplace_back(server.port());
    if (i % 2 == 0) idle.back().send("GET / HTTP/1.1\r\nHost: x\r\nX: ");
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(fetch("GET", server.url(), soon()).status, 200);
  EXPECT_GE(server.connections(), 400U);
}

TEST(HttpServer, AConnectionOverTheLimitTakesTheOldestIdleOnesPlace) {
  TestServer server(echo(), {.connections = 2});
  RawClient oldest(server.port());
  RawClient newer(server.port());
  // Now `newer` has been idle for longer than `oldest`.
  newer.send(get("/newer"));
  newer.read_until("GET /newer ");
  oldest.send(get("/oldest"));
  oldest.read_until("GET /oldest ");
  for (int i = 0; i < 3; ++i) {
    RawClient another(server.port());
    another.send(get("/another", "Connection: close\r\n"));
    EXPECT_THAT(another.read_to_end(), HasSubstr("GET /another "));
    if (i == 0) {
      EXPECT_EQ(newer.read_to_end(), "");
    }
  }
  oldest.send(get("/again"));
  oldest.read_until("GET /again ");
  EXPECT_LE(server.connections(), 2U);
}

TEST(HttpServer, ConnectionsInTheMiddleOfARequestMakeRoomWhereNoneIsIdle) {
  TestServer server(echo(), {.connections = 20});
  std::list<RawClient> slow;
  for (int i = 0; i < 200; ++i) {
    slow.emplace_back(server.port());
    slow.back().send(i % 2 == 0 ? "GET / HTTP/1.1\r\nHost: x\r\nX: "
                                : "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf");
    EXPECT_EQ(fetch("GET", server.url(), soon()).status, 200);
  }
  EXPECT_LE(server.connections(), 20U);
}

TEST(HttpServer, AnIdleConnectionMakesRoomWhereDescriptorsRunOut) {
  if (fo::test::kHasSanitizers) FO_SKIP("release", fo::test::kSanitizersOpenPipes);
  TestServer server(echo());
  RawClient idle(server.port());
  idle.send(get("/"));
  idle.read_until("GET / ");
  RawClient late;
  const fo::test::FewDescriptors none;
  late.connect(server.port());
  late.send(get("/late"));
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_THAT(late.read_until("GET /late "), HasSubstr("200 OK"));
}

TEST(HttpServer, ConnectionsOverTheLimitAre503WhileTheHandlerHasAll) {
  const ServerLimits limits{.connections = 1};
  Gate gate;
  TestServer server(gate.handler(), limits);
  RawClient first(server.port());
  first.send(get("/"));
  gate.wait_until_entered();
  const std::string refused = RawClient(server.port()).read_to_end();
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(refused, HasSubstr("\r\nRetry-After: 1\r\n"));
  EXPECT_THAT(refused, HasSubstr("too many connections"));
  gate.open();
  first.read_until("through");
}

TEST(HttpServer, ConnectionsAreGivenBack) {
  TestServer server(echo());
  for (int i = 0; i < 20; ++i) fetch("GET", server.url(), soon());
  fo::test::await([&] { return server.connections() == 0; });
}

TEST(HttpServer, AHandlerThatThrowsIs500AndTheConnectionGoesOn) {
  TestServer server([](const Request& request, Reply& reply) -> awaitable<void> {
    if (request.path == "/bad") throw std::runtime_error("secret");
    reply.answer({200, "text/plain", "fine", {}});
    co_return;
  });
  RawClient client(server.port());
  testing::internal::CaptureStderr();
  client.send(get("/bad"));
  const std::string answer = client.read_until("}}");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(": error: answer GET '/bad': secret\n"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 500 Internal Server Error\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("secret")));
  client.send(get("/good"));
  client.read_until("fine");
}

TEST(HttpServer, AHandlerThatSaysNothingIs501) {
  TestServer server([](const Request&, Reply&) -> awaitable<void> { co_return; });
  EXPECT_EQ(fetch("GET", server.url(), soon()).status, 501);
}

TEST(HttpServer, StreamsPiecesAtOnceAndInOrder) {
  std::promise<void> seen_first;
  auto first_was_seen = seen_first.get_future();
  TestServer server([&](const Request&, Reply& reply) -> awaitable<void> {
    co_await reply.begin(200, "text/event-stream");
    co_await reply.write("data: 0\n\n");
    first_was_seen.wait();
    co_await reply.write("");
    for (int i = 1; i < 100; ++i) {
      const std::string piece = "data: " + std::to_string(i) + "\n\n";
      co_await reply.write(piece);
    }
  });
  RawClient client(server.port());
  client.send(get("/"));
  EXPECT_THAT(client.read_until("data: 0\n\n"), HasSubstr("Transfer-Encoding: chunked\r\n"));
  seen_first.set_value();
  std::string rest = client.read_until("0\r\n\r\n");
  std::size_t at = 0;
  for (int i = 1; i < 100; ++i) {
    at = rest.find("data: " + std::to_string(i) + "\n\n", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  client.send(get("/"));  // The connection is still usable.
  client.read_until("0\r\n\r\n");
}

TEST(HttpServer, StreamsToOldClientsWithoutChunks) {
  TestServer server([](const Request&, Reply& reply) -> awaitable<void> {
    co_await reply.begin(200, "text/plain");
    co_await reply.write("one ");
    co_await reply.write("two");
  });
  RawClient client(server.port());
  client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(client.read_to_end(), EndsWith("\r\n\r\none two"));
}

TEST(HttpServer, AStreamThatFailsIsSeenToBeIncomplete) {
  TestServer server(answer_half);
  testing::internal::CaptureStderr();
  RawClient client(server.port());
  client.send(get("/"));
  EXPECT_THAT(client.read_to_end(), EndsWith("4\r\nhalf\r\n"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("engine died"));
}

TEST(HttpServer, StopFinishesRequestsInFlight) {
  Gate gate;
  TestServer server(gate.handler());
  RawClient idle(server.port());
  RawClient busy(server.port());
  busy.send(get("/"));
  gate.wait_until_entered();
  std::future<bool> stopped = server.stop(base::Deadline::never());
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_THROW(fetch("GET", server.url(), soon()), base::Error);
  gate.open();
  const std::string answer = busy.read_to_end();
  EXPECT_THAT(answer, EndsWith("through"));
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
  EXPECT_TRUE(stopped.get());
  EXPECT_EQ(server.connections(), 0U);
}

TEST(HttpServer, StopLeavesIdleConnectionsTimeForOneMoreAnswer) {
  TestServer server(echo());
  RawClient idle(server.port());
  fo::test::await([&] { return server.connections() == 1; });
  std::future<bool> stopped = server.stop(base::Deadline::never(), base::Deadline::never());
  EXPECT_EQ(server.connections(), 1U);  // the loop has begun to stop once it answers this
  EXPECT_THROW(fetch("GET", server.url(), soon()), base::Error);
  idle.send(get("/x"));
  EXPECT_THAT(idle.read_to_end(), HasSubstr("Connection: close"));
  EXPECT_TRUE(stopped.get());
}

TEST(HttpServer, ConnectionsEndWithTheirNextAnswersWhileOthersAreAccepted) {
  TestServer server(echo());
  RawClient client(server.port());
  client.send(get("/x"));
  EXPECT_THAT(client.read_until("GET /x "), HasSubstr("Connection: keep-alive"));
  server.close_after_answers();
  client.send(get("/y"));
  EXPECT_THAT(client.read_to_end(), HasSubstr("Connection: close"));
  RawClient another(server.port());
  another.send(get("/z"));
  EXPECT_THAT(another.read_to_end(), HasSubstr("Connection: close"));
}

TEST(HttpServer, ARequestBehindTheLastAnswerDoesNotCutTheAnswer) {
  std::promise<void> entered;
  std::promise<void> is_sent;
  TestServer server([&](const Request&, Reply& reply) -> awaitable<void> {
    entered.set_value();
    is_sent.get_future().wait();
    reply.close_after();
    reply.answer({200, "text/plain", std::string(60000, 'x') + "end", {}});
    co_return;
  });
  Listener listener = small_listener();
  const std::uint16_t port = listener.port;
  server.listen(std::move(listener.fd));
  RawClient client;
  const int few = 4096;
  ASSERT_EQ(::setsockopt(client.fd(), SOL_SOCKET, SO_RCVBUF, &few, sizeof few), 0);
  client.connect(port);
  client.send(get("/"));
  entered.get_future().wait();
  client.send(get("/next"));
  is_sent.set_value();
  // The loop has sent the answer once it answers this, and the client has read nothing of it.
  server.connections();
  EXPECT_THAT(client.read_to_end(), EndsWith("xend"));
  EXPECT_EQ(client.end(), 0);
}

TEST(HttpServer, StopClosesIdleConnectionsInTheEnd) {
  TestServer server(echo());
  RawClient idle(server.port());
  fo::test::await([&] { return server.connections() == 1; });
  const base::Deadline idle_until = base::Deadline::after(std::chrono::milliseconds(10));
  EXPECT_TRUE(server.stop(base::Deadline::never(), idle_until).get());
  EXPECT_EQ(idle.read_to_end(), "");
}

TEST(HttpServer, StopCutsWhatIsLeftAtTheDeadline) {
  Gate gate;
  TestServer server(gate.handler());
  RawClient busy(server.port());
  busy.send(get("/"));
  gate.wait_until_entered();
  EXPECT_FALSE(server.stop(base::Deadline::after(base::Duration::zero())).get());
  EXPECT_EQ(busy.read_to_end(), "");
  gate.open();
}

TEST(HttpServer, StopWithoutConnectionsReturnsAtOnce) {
  TestServer server(echo());
  EXPECT_TRUE(server.stop(base::Deadline::never()).get());
}

TEST(HttpServer, ListensOnASocketThatIsGivenAndLeavesItsNameAlone) {
  const fo::test::TempDir dir;
  const std::string path = dir.path("s");
  const std::ptrdiff_t before = fo::test::open_fds();
  {
    TestServer server(echo());
    server.listen(os::listen_unix(path));
    EXPECT_EQ(fetch("GET", "unix:" + path + ":/x", soon()).body, "GET /x ");
  }
  EXPECT_EQ(fo::test::open_fds(), before);
  EXPECT_FALSE(os::is_socket_live(path));
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
}

TEST(HttpServer, NoSocketOfAServerOrAClientReachesAChild) {
  const fo::test::TempDir dir;
  const std::set<int> before = inherited_fds();
  std::set<int> meanwhile;
  TestServer server([&](const Request&, Reply& reply) -> awaitable<void> {
    // Now both ends of a connection and the listening sockets are open.
    meanwhile = inherited_fds();
    reply.answer({200, "text/plain", "", {}});
    co_return;
  });
  server.listen(os::listen_unix(dir.path("s")));
  EXPECT_EQ(inherited_fds(), before);
  for (const std::string& url : {server.url(), "unix:" + dir.path("s") + ":/"}) {
    EXPECT_EQ(fetch("GET", url, soon()).status, 200);
    EXPECT_EQ(meanwhile, before) << url;
  }
}

TEST(HttpServer, SaysWhyItCannotListen) {
  TestServer other(echo());
  boost::asio::io_context loop;
  Server server(loop.get_executor(), echo());
  const std::string address = "127.0.0.1:" + std::to_string(other.port());
  const auto failure = fo::test::failure_of([&] { server.listen(address); });
  EXPECT_EQ(failure.status, base::ExitStatus::kCannotCreate);
  EXPECT_EQ(failure.message, "listen on '" + address + "': Address already in use");
  EXPECT_THROW(server.listen("somewhere:80"), base::Error);
}

}  // namespace
}  // namespace fo::http::test
