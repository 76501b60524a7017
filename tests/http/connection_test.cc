#include "http/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "net/tls.h"
#include "net/tls_server.h"
#include "scripted_server.h"
#include "support/authority.h"
#include "support/failure.h"
#include "support/fds.h"

namespace fo::http::test {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;
using fo::test::in_ms;
using fo::test::soon;
using fo::test::status_of;
using testing::HasSubstr;
using testing::StartsWith;
using ConnectionPtr = std::unique_ptr<Connection>;
using Progress = Connection::Progress;

const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

RequestHead request(const std::string& method = "GET", const std::string& target = "/") {
  return {method, target, {}, false};
}

class HttpConnection : public fo::test::FdCounting {
 protected:
  using Script = ScriptedServer::Script;

  /// Runs `body` on a connection to a server that follows the script.
  void run(const Script& script, std::function<awaitable<void>(Connection&)> body,
           Connection::Limits limits = {}) {
    ScriptedServer server(loop_.io().get_executor(), script);
    loop_.run(connect_and(server, body, limits));
    server.stop();
    // All coroutines end with the connection.
    loop_.run_until([&] { return server.ended() == server.connections(); });
  }
  /// The same for a server that sends this answer after each head of a request, and closes.
  void run_with(const std::string& answer, std::function<awaitable<void>(Connection&)> body,
                Connection::Limits limits = {}) {
    run(
        [answer](Peer& peer, int) -> awaitable<void> {
          co_await peer.read_head();
          co_await peer.write(answer);
        },
        std::move(body), limits);
  }
  /// The status of the error that reading such a server's answer throws; kOk for none.
  ExitStatus status_with(const std::string& answer, Connection::Limits limits = {}) {
    ExitStatus status = ExitStatus::kOk;
    run_with(
        answer,
        [&](Connection& connection) -> awaitable<void> {
          try {
            co_await ask(connection);
          } catch (const Error& error) {
            status = error.status();
            reason_ = error.what();
          }
        },
        limits);
    return status;
  }

  /// Reads the whole body.
  static awaitable<std::string> read_all(Connection& connection, std::size_t space = 1000) {
    std::string body;
    std::vector<char> piece(space);
    for (;;) {
      const std::size_t count = co_await connection.read_some(piece, soon());
      if (count == 0) co_return body;
      body.append(piece.data(), count);
    }
  }
  /// Sends a request and reads the whole answer.
  static awaitable<std::string> ask(Connection& connection, std::string method = "GET") {
    RequestHead head = request(method);
    co_await connection.send(std::move(head), "", soon());
    const ResponseHead answer = co_await connection.read_head(soon());
    std::string body = co_await read_all(connection);
    co_return body;
  }

  /// Sends a request.
  static awaitable<void> send(Connection& connection) {
    RequestHead head = request();
    co_await connection.send(std::move(head), "", soon());
  }
  /// Sends a request and reads the head of the answer.
  static awaitable<ResponseHead> ask_head(Connection& connection) {
    co_await send(connection);
    const ResponseHead answer = co_await connection.read_head(soon());
    co_return answer;
  }
  static awaitable<ConnectionPtr> open(Origin origin, Deadline deadline = soon(),
                                       Connection::Limits limits = {}) {
    const std::string what = "ask it";
    ConnectionPtr connection = co_await Connection::open(std::move(origin), deadline, what, limits);
    co_return connection;
  }
  static awaitable<void> wait_for_death(const Connection& connection) {
    boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
    while (connection.is_alive()) {
      timer.expires_after(std::chrono::milliseconds(1));
      co_await timer.async_wait(boost::asio::use_awaitable);
    }
  }

  fo::test::TestLoop loop_;
  std::string reason_;

 private:
  static awaitable<void> connect_and(const ScriptedServer& server,
                                     const std::function<awaitable<void>(Connection&)>& body,
                                     Connection::Limits limits) {
    const ConnectionPtr connection = co_await open(server.origin(), soon(), limits);
    co_await body(*connection);
  }
};

TEST_F(HttpConnection, CarriesOneRequestAfterTheOther) {
  std::vector<std::string> requests;
  run(
      [&](Peer& peer, int) -> awaitable<void> {
        for (int i = 0; i < 3; ++i) {
          requests.push_back(co_await peer.read_head());
          co_await peer.write(kOk);
        }
      },
      [&](Connection& connection) -> awaitable<void> {
        for (int i = 0; i < 3; ++i) {
          EXPECT_EQ(connection.is_reused(), i > 1);
          const std::string body = co_await ask(connection);
          EXPECT_EQ(body, "hi");
          EXPECT_TRUE(connection.is_reusable());
        }
      });
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_THAT(requests[2], StartsWith("GET / HTTP/1.1\r\nHost: 127.0.0.1:"));
  EXPECT_THAT(requests[2], testing::Not(HasSubstr("Content-Length")));
}

TEST_F(HttpConnection, SendsHeadersAndABodyOfAnyType) {
  std::string seen;
  run(
      [&](Peer& peer, int) -> awaitable<void> {
        seen = co_await peer.read_until("\r\n\r\n\x01\xff");
        co_await peer.write(kOk);
      },
      [&](Connection& connection) -> awaitable<void> {
        RequestHead head{"PATCH", "/a?b=c", {{"Content-Type", "audio/wav"}, {"X-A", ""}}, true};
        co_await connection.send(std::move(head), "\x01\xff", soon());
        const ResponseHead answer = co_await connection.read_head(soon());
        EXPECT_EQ(answer.status, 200);
        const bool is_reusable = co_await connection.finish(soon());
        EXPECT_FALSE(is_reusable) << "it was to be closed";
      });
  EXPECT_THAT(seen, StartsWith("PATCH /a?b=c HTTP/1.1\r\nConnection: close\r\nHost: "));
  EXPECT_THAT(seen, HasSubstr("\r\nContent-Type: audio/wav\r\nX-A: \r\nContent-Length: 2\r\n"));
}

TEST_F(HttpConnection, AMethodWithABodySaysThatThereIsNone) {
  std::string seen;
  run(
      [&](Peer& peer, int) -> awaitable<void> {
        seen = co_await peer.read_head();
        co_await peer.write(kOk);
      },
      [&](Connection& connection) -> awaitable<void> { co_await ask(connection, "POST"); });
  EXPECT_THAT(seen, HasSubstr("\r\nContent-Length: 0\r\n"));
}

TEST_F(HttpConnection, WhatWouldBreakTheHeadIsNotSent) {
  std::string seen;
  run([&](Peer& peer, int) -> awaitable<void> { seen = co_await peer.read_to_end(); },
      [&](Connection& connection) -> awaitable<void> {
        const std::vector<RequestHead> bad{{"GE T", "/", {}, false},
                                           {"", "/", {}, false},
                                           {"GET", "", {}, false},
                                           {"GET", "/ HTTP/1.1\r\nX: y", {}, false},
                                           {"GET", "/", {{"X", "a\r\nY: b"}}, false},
                                           {"GET", "/", {{"X Y", "a"}}, false},
                                           {"GET", "/", {{"", "a"}}, false},
                                           {"GET", "/", {{"host", "other"}}, false},
                                           {"GET", "/", {{"Content-Length", "5"}}, false},
                                           {"GET", "/", {{"Transfer-Encoding", "x"}}, false},
                                           {"GET", "/", {{"connection", "close"}}, false}};
        for (const RequestHead& one : bad) {
          RequestHead head = one;
          const ExitStatus status =
              co_await status_of(connection.send(std::move(head), "", soon()));
          EXPECT_EQ(status, ExitStatus::kUsage) << one.method << one.target;
        }
      });
  EXPECT_EQ(seen, "");
}

TEST_F(HttpConnection, GivesTheBodyInWhateverSpaceThereIs) {
  for (const std::size_t space : {1U, 2U, 7U, 1000U}) {
    run_with(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n \r\n"
        "5\r\nworld\r\n0\r\n\r\n",
        [&](Connection& connection) -> awaitable<void> {
          co_await ask_head(connection);
          const std::string body = co_await read_all(connection, space);
          EXPECT_EQ(body, "hello world");
          EXPECT_TRUE(connection.is_reusable());
        });
  }
}

TEST_F(HttpConnection, TrailersAreApartFromHeaders) {
  run_with(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n"
      "2\r\nhi\r\n0\r\nX-A: 2\r\nX-B: 3\r\n\r\n",
      [&](Connection& connection) -> awaitable<void> {
        const ResponseHead answer = co_await ask_head(connection);
        EXPECT_EQ(answer.headers, (Fields{{"Transfer-Encoding", "chunked"}, {"X-A", "1"}}));
        co_await read_all(connection);
        EXPECT_TRUE(connection.is_reusable());
      });
}

TEST_F(HttpConnection, InterimAnswersArePassedOver) {
  run_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + kOk,
           [&](Connection& connection) -> awaitable<void> {
             const std::string body = co_await ask(connection);
             EXPECT_EQ(body, "hi");
             EXPECT_TRUE(connection.is_reusable());
           });
}

TEST_F(HttpConnection, InterimAnswersWithoutEndAndUpgradesAreRefused) {
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "HTTP/1.1 102 Processing\r\n\r\n";
  EXPECT_EQ(status_with(many), ExitStatus::kProtocol);
  EXPECT_EQ(status_with("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
            ExitStatus::kProtocol);
}

TEST_F(HttpConnection, AnAnswerWithoutABodyEndsWithItsHead) {
  for (const char* const answer :
       {"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}) {
    run_with(answer, [&](Connection& connection) -> awaitable<void> {
      const std::string body = co_await ask(connection);
      EXPECT_EQ(body, "");
      EXPECT_TRUE(connection.is_reusable());
    });
  }
  run_with("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
           [&](Connection& connection) -> awaitable<void> {
             const std::string body = co_await ask(connection, "HEAD");
             EXPECT_EQ(body, "");
             EXPECT_TRUE(connection.is_reusable());
           });
}

TEST_F(HttpConnection, IsReusableWhereTheServerWantsIt) {
  const std::vector<std::pair<std::string, bool>> answers{
      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", true},
      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi", false},
      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x, CLOSE\r\n\r\nhi", false},
      {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", false},
      {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: Keep-Alive\r\n\r\nhi", true},
      {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"
       "2\r\nhi\r\n0\r\n\r\n",
       false},
      // These bodies end with the connection.
      {"HTTP/1.1 200 OK\r\n\r\nhi", false},
      {"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nhi", false},
      // The server sends more than the answer.
      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi!", false},
      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi" + kOk, false},
  };
  for (const auto& [answer, is_reusable] : answers) {
    run_with(answer, [&](Connection& connection) -> awaitable<void> {
      const std::string body = co_await ask(connection);
      EXPECT_EQ(body, "hi");
      EXPECT_EQ(connection.is_reusable(), is_reusable) << answer;
    });
  }
}

TEST_F(HttpConnection, FinishThrowsALittleAwayAndNotMuch) {
  for (const std::size_t size : {std::size_t{1000}, std::size_t{1000000}}) {
    run_with("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n" +
                 std::string(size, 'x'),
             [&](Connection& connection) -> awaitable<void> {
               co_await ask_head(connection);
               EXPECT_FALSE(connection.is_reusable());
               const bool is_reusable = co_await connection.finish(soon());
               EXPECT_EQ(is_reusable, size == 1000);
             });
  }
}

TEST_F(HttpConnection, FinishDoesNotWaitForAHeadThatNobodyRead) {
  run([](Peer& peer, int) -> awaitable<void> { co_await peer.read_to_end(); },
      [&](Connection& connection) -> awaitable<void> {
        co_await send(connection);
        const bool is_reusable = co_await connection.finish(Deadline::never());
        EXPECT_FALSE(is_reusable);
      });
}

TEST_F(HttpConnection, AnAnswerThatIsNotReadToItsEndForbidsAnotherRequest) {
  run_with("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
           [&](Connection& connection) -> awaitable<void> {
             co_await ask_head(connection);
             const ExitStatus status = co_await status_of(ask(connection));
             EXPECT_EQ(status, ExitStatus::kSoftware);
           });
}

// Failures.

TEST_F(HttpConnection, EveryTruncationIsUnavailable) {
  const std::vector<std::string> answers{
      kOk, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n\r\n"};
  for (const std::string& answer : answers) {
    for (std::size_t length = 0; length < answer.size(); ++length) {
      EXPECT_EQ(status_with(answer.substr(0, length)), ExitStatus::kUnavailable) << length;
      EXPECT_EQ(reason_, "ask it: the connection ended early");
    }
    EXPECT_EQ(status_with(answer), ExitStatus::kOk);
  }
}

TEST_F(HttpConnection, WhatIsNoAnswerBreaksTheProtocol) {
  for (const char* const answer :
       {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 099 No\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nbad\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\nY: b\r\n\r\n", "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"}) {
    EXPECT_EQ(status_with(answer), ExitStatus::kProtocol) << answer;
    EXPECT_THAT(reason_, StartsWith("ask it: "));
  }
}

TEST_F(HttpConnection, BadChunksBreakTheProtocol) {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* const chunks :
       {"zz\r\n", "-1\r\nx\r\n", "2\r\nhixx\r\n", "fffffffffffffffff\r\nx",
        "2 x\r\nhi\r\n0\r\n\r\n", "0\r\nbad\r\n\r\n", "0\r\nContent-Length: 3\r\n\r\n"}) {
    EXPECT_EQ(status_with(head + chunks), ExitStatus::kProtocol) << chunks;
  }
}

TEST_F(HttpConnection, GoodBytesComeBeforeTheErrorBehindThem) {
  run_with("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
           [&](Connection& connection) -> awaitable<void> {
             co_await ask_head(connection);
             std::array<char, 100> space;
             const std::size_t count = co_await connection.read_some(space, soon());
             EXPECT_EQ(std::string(space.data(), count), "hello");
             const ExitStatus status = co_await status_of(connection.read_some(space, soon()));
             EXPECT_EQ(status, ExitStatus::kProtocol);
             EXPECT_FALSE(connection.is_reusable());
           });
}

TEST_F(HttpConnection, HugeHeadsBreakTheProtocol) {
  const Connection::Limits limits{.head_bytes = 1000, .fields = 10};
  const std::string begin = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n";
  EXPECT_EQ(status_with(begin + "X: " + std::string(2000, 'x') + "\r\n\r\nhi", limits),
            ExitStatus::kProtocol);
  EXPECT_EQ(status_with(begin + "X: " + std::string(2000, 'x'), limits), ExitStatus::kProtocol);
  EXPECT_EQ(status_with(std::string(100000, 'H'), limits), ExitStatus::kProtocol);
  std::string fields;
  for (int i = 0; i < 9; ++i) fields += "X: y\r\n";
  EXPECT_EQ(status_with(begin + fields + "\r\nhi", limits), ExitStatus::kOk);
  EXPECT_EQ(status_with(begin + fields + "X: y\r\n\r\nhi", limits), ExitStatus::kProtocol);
}

TEST_F(HttpConnection, HugeTrailersAndChunkLinesBreakTheProtocol) {
  const Connection::Limits limits{.head_bytes = 1000, .fields = 10};
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string much(100000, 'x');
  EXPECT_EQ(status_with(head + "0\r\nX: " + much, limits), ExitStatus::kProtocol);
  EXPECT_EQ(status_with(head + "1;a=" + much, limits), ExitStatus::kProtocol);
  std::string many = "0\r\n";
  for (int i = 0; i < 20; ++i) many += "X: y\r\n";
  EXPECT_EQ(status_with(head + many + "\r\n", limits), ExitStatus::kProtocol);
}

TEST_F(HttpConnection, AResetIsUnavailable) {
  for (const std::string& answer :
       {std::string(), kOk.substr(0, 10), kOk.substr(0, kOk.size() - 1)}) {
    ExitStatus status = ExitStatus::kOk;
    run(
        [&](Peer& peer, int) -> awaitable<void> {
          co_await peer.read_head();
          co_await peer.write(answer);
          peer.reset();
        },
        [&](Connection& connection) -> awaitable<void> {
          status = co_await status_of(ask(connection));
          EXPECT_FALSE(connection.is_reusable());
        });
    EXPECT_EQ(status, ExitStatus::kUnavailable);
  }
}

TEST_F(HttpConnection, ASlowServerTimesOutAndNothingIsLost) {
  Peer* slow = nullptr;
  boost::asio::steady_timer forever(loop_.io());
  forever.expires_at(boost::asio::steady_timer::time_point::max());
  run(
      [&](Peer& peer, int) -> awaitable<void> {
        slow = &peer;
        co_await peer.read_head();
        co_await peer.write("HTTP/1.1 200 OK\r\nContent-Le");
        boost::system::error_code ignored;
        auto token = boost::asio::redirect_error(boost::asio::use_awaitable, ignored);
        co_await forever.async_wait(token);
      },
      [&](Connection& connection) -> awaitable<void> {
        co_await send(connection);
        int timeouts = 0;
        for (int i = 0; i < 3; ++i) {
          try {
            co_await connection.read_head(in_ms(5));
          } catch (const Error& error) {
            EXPECT_STREQ(error.what(), "ask it: timed out");
            timeouts += error.status() == ExitStatus::kTryAgain ? 1 : 0;
          }
        }
        EXPECT_EQ(timeouts, 3);
        co_await slow->write("ngth: 4\r\n\r\nab");
        const ResponseHead answer = co_await connection.read_head(soon());
        EXPECT_EQ(answer.status, 200);
        std::array<char, 100> space;
        std::size_t count = co_await connection.read_some(space, soon());
        EXPECT_EQ(count, 2U);
        try {
          count = co_await connection.read_some(space, in_ms(5));
        } catch (const Error& error) {
          EXPECT_EQ(error.status(), ExitStatus::kTryAgain);
        }
        EXPECT_FALSE(connection.is_reusable());
        co_await slow->write("cd");
        count = co_await connection.read_some(space, soon());
        EXPECT_EQ(count, 2U);
        EXPECT_TRUE(connection.is_reusable());
        forever.cancel();
      });
}

TEST_F(HttpConnection, ARequestThatIsNotTakenInTimeClosesTheConnection) {
  boost::asio::steady_timer forever(loop_.io());
  forever.expires_at(boost::asio::steady_timer::time_point::max());
  run(
      [&](Peer&, int) -> awaitable<void> {
        boost::system::error_code ignored;
        auto token = boost::asio::redirect_error(boost::asio::use_awaitable, ignored);
        co_await forever.async_wait(token);
      },
      [&](Connection& connection) -> awaitable<void> {
        const std::string body(32 << 20, 'x');
        RequestHead head = request("POST");
        ExitStatus status = co_await status_of(connection.send(std::move(head), body, in_ms(20)));
        EXPECT_EQ(status, ExitStatus::kTryAgain);
        EXPECT_EQ(connection.progress(), Progress::kSent);
        status = co_await status_of(connection.read_head(soon()));
        EXPECT_EQ(status, ExitStatus::kUnavailable);
        forever.cancel();
      });
}

TEST_F(HttpConnection, TheAnswerToABodyThatWasRefusedIsRead) {
  run(
      [&](Peer& peer, int) -> awaitable<void> {
        co_await peer.read_head();
        co_await peer.write("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
      },
      [&](Connection& connection) -> awaitable<void> {
        RequestHead head = request("POST");
        const std::string body(32 << 20, 'x');
        co_await connection.send(std::move(head), body, soon());
        const ResponseHead answer = co_await connection.read_head(soon());
        EXPECT_EQ(answer.status, 413);
        EXPECT_EQ(connection.progress(), Progress::kAnswered);
        EXPECT_FALSE(connection.is_reusable());
      });
}

TEST_F(HttpConnection, NoMoreIsReadThanWasAskedFor) {
  Peer* server = nullptr;
  constexpr std::size_t kPiece = std::size_t{64} << 10;
  std::size_t written = 0;
  run(
      [&](Peer& peer, int) -> awaitable<void> {
        server = &peer;
        co_await peer.read_head();
        co_await peer.write("HTTP/1.1 200 OK\r\n\r\n");
        const std::string piece(kPiece, 'x');
        // This exceeds the kernel's buffers by far, so it ends only when the client closes.
        for (int i = 0; i < 2000; ++i) {
          co_await peer.write(piece);
          written += kPiece;
          if (server == nullptr) co_return;
        }
      },
      [&](Connection& connection) -> awaitable<void> {
        co_await ask_head(connection);
        // Wait until the kernel's buffers are full.
        std::size_t before = 1;
        boost::asio::steady_timer timer(loop_.io());
        while (before != written) {
          before = written;
          timer.expires_after(std::chrono::milliseconds(50));
          co_await timer.async_wait(boost::asio::use_awaitable);
        }
        EXPECT_LT(written, 2000 * kPiece);
        std::array<char, 100> space;
        const std::size_t count = co_await connection.read_some(space, soon());
        EXPECT_EQ(count, space.size());
        server = nullptr;
      });
}

// Retries.

TEST_F(HttpConnection, ARefusedConnectionIsAnErrorOfOpen) {
  Origin origin;
  origin.address = {"127.0.0.1", 0};
  {
    const boost::asio::ip::tcp::acceptor nobody(loop_.io(),
                                                {boost::asio::ip::address_v4::loopback(), 0});
    origin.address.port = nobody.local_endpoint().port();
  }
  const auto failure = fo::test::failure_of([&] { loop_.run(open(origin)); });
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_EQ(failure.message, "ask it: Connection refused");
}

TEST_F(HttpConnection, ANameLeadsOnlyToAllowedAddresses) {
  const auto until_closed = [](Peer& peer, int) -> awaitable<void> { co_await peer.read_to_end(); };
  ScriptedServer server(loop_.io().get_executor(), until_closed);
  Origin origin = server.origin();
  origin.address.host = "localhost";
  origin.networks = std::make_shared<const net::Networks>("10.0.0.0/8");
  const auto failure = fo::test::failure_of([&] { loop_.run(open(origin)); });
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_EQ(failure.message, "ask it: 'localhost' has no address in the allowed networks");
  origin.networks = std::make_shared<const net::Networks>("10.0.0.0/8,127.0.0.0/8");
  loop_.run(open(origin));
  server.stop();
}

TEST_F(HttpConnection, AReusedConnectionThatTheServerClosedMayBeReplacedForWhatIsIdempotent) {
  for (const std::string& method : std::vector<std::string>{"GET", "DELETE", "POST"}) {
    run_with(kOk, [&](Connection& connection) -> awaitable<void> {
      co_await ask(connection);
      const ExitStatus status = co_await status_of(ask(connection, method));
      EXPECT_EQ(status, ExitStatus::kUnavailable);
      EXPECT_TRUE(connection.is_reused());
      // The kernel accepts the first bytes of a request even if no process reads them.
      EXPECT_EQ(connection.progress(), Progress::kSent);
    });
  }
}

TEST_F(HttpConnection, ANewConnectionThatTheServerClosedIsNotReplaced) {
  run([](Peer& peer, int) -> awaitable<void> { co_await peer.read_head(); },
      [&](Connection& connection) -> awaitable<void> {
        try {
          co_await ask(connection);
        } catch (const Error&) {
          EXPECT_EQ(connection.progress(), Progress::kSent);
        }
      });
}

TEST_F(HttpConnection, AfterAByteOfAnAnswerNothingIsSentAgain) {
  run(
      [](Peer& peer, int) -> awaitable<void> {
        co_await peer.read_head();
        co_await peer.write(kOk);
        co_await peer.read_head();
        co_await peer.write("H");
      },
      [&](Connection& connection) -> awaitable<void> {
        co_await ask(connection);
        try {
          co_await ask(connection);
        } catch (const Error&) {
          EXPECT_EQ(connection.progress(), Progress::kAnswered);
        }
      });
}

TEST_F(HttpConnection, NothingThatWasSentMayBeSentAgain) {
  // The reset makes the first write fail.
  run(
      [](Peer& peer, int) -> awaitable<void> {
        co_await peer.read_head();
        co_await peer.write(kOk);
        peer.reset();
      },
      [&](Connection& connection) -> awaitable<void> {
        co_await ask(connection);
        co_await wait_for_death(connection);
        const ExitStatus status = co_await status_of(ask(connection, "POST"));
        EXPECT_EQ(status, ExitStatus::kUnavailable);
        EXPECT_EQ(connection.progress(), Progress::kNothingSent);
      });
}

TEST_F(HttpConnection, ADeadConnectionIsNoticed) {
  for (const bool speaks : {false, true}) {
    run(
        [&](Peer& peer, int) -> awaitable<void> {
          co_await peer.read_head();
          co_await peer.write(kOk);
          co_await peer.read_head();
          co_await peer.write(kOk);
          // The server sends a 408, or closes.
          if (speaks) co_await peer.write("HTTP/1.1 408 Request Timeout\r\n\r\n");
          if (speaks) co_await peer.read_to_end();
        },
        [&](Connection& connection) -> awaitable<void> {
          co_await ask(connection);
          EXPECT_TRUE(connection.is_alive());
          co_await ask(connection);
          co_await wait_for_death(connection);
        });
  }
}

// Cancellation.

class HttpCancellation : public HttpConnection {
 protected:
  /// Runs `body` until `cancel()`, and expects that the cancellation ends it.
  void expect_cancelled(awaitable<void> body) {
    std::exception_ptr failure;
    bool is_over = false;
    loop::spawn(
        loop_.io(), std::move(body),
        [&](std::exception_ptr thrown) {
          failure = std::move(thrown);
          is_over = true;
        },
        signal_.slot());
    loop_.run_until([&] { return is_over; });
    try {
      if (failure) std::rethrow_exception(failure);
      ADD_FAILURE() << "it was not cancelled";
    } catch (const boost::system::system_error& error) {
      EXPECT_EQ(error.code(), boost::asio::error::operation_aborted);
    }
  }
  /// Cancels from the loop, not from within the caller.
  void cancel() {
    boost::asio::post(loop_.io(),
                      [this] { signal_.emit(boost::asio::cancellation_type::terminal); });
  }

  boost::asio::cancellation_signal signal_;
};

enum class Step { kHead, kBody, kFinish, kSend };

class HttpCancellationAt : public HttpCancellation, public testing::WithParamInterface<Step> {};
INSTANTIATE_TEST_SUITE_P(Steps, HttpCancellationAt,
                         testing::Values(Step::kHead, Step::kBody, Step::kFinish, Step::kSend));

TEST_P(HttpCancellationAt, ClosesTheConnection) {
  const Step step = GetParam();
  ScriptedServer server(loop_.io().get_executor(), [&](Peer& peer, int) -> awaitable<void> {
    co_await peer.read_head();
    if (step == Step::kBody || step == Step::kFinish) {
      co_await peer.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe");
    }
    cancel();
    // Wait before reading what the kernel has of the body.
    boost::asio::steady_timer timer(loop_.io(), std::chrono::milliseconds(20));
    co_await timer.async_wait(boost::asio::use_awaitable);
    // This ends only because the client closes.
    co_await peer.read_to_end();
  });
  ConnectionPtr connection;
  const auto body = [&]() -> awaitable<void> {
    connection = co_await open(server.origin(), Deadline::never());
    RequestHead head = request("POST");
    const std::string much(step == Step::kSend ? 64 << 20 : 0, 'x');
    co_await connection->send(std::move(head), much, Deadline::never());
    co_await connection->read_head(Deadline::never());
    std::array<char, 100> space;
    if (step == Step::kFinish) co_await connection->finish(Deadline::never());
    for (;;) co_await connection->read_some(space, Deadline::never());
  };
  expect_cancelled(body());
  EXPECT_FALSE(connection->is_reusable());
  // The connection is closed although the object still exists.
  loop_.run_until([&] { return server.ended() == 1; });
}

TEST_F(HttpCancellation, CloseEndsWhatWaits) {
  ScriptedServer server(loop_.io().get_executor(),
                        [&](Peer& peer, int) -> awaitable<void> { co_await peer.read_to_end(); });
  ConnectionPtr connection;
  const auto body = [&]() -> awaitable<void> {
    connection = co_await open(server.origin(), Deadline::never());
    RequestHead head = request();
    co_await connection->send(std::move(head), "", Deadline::never());
    boost::asio::post(loop_.io(), [&] { connection->close(); });
    co_await connection->read_head(Deadline::never());
  };
  expect_cancelled(body());
  loop_.run_until([&] { return server.ended() == 1; });
}

TEST_F(HttpCancellation, MayBeDestroyedWhileItReads) {
  boost::asio::io_context loop(1);
  ScriptedServer server(loop.get_executor(), [&](Peer& peer, int) -> awaitable<void> {
    co_await peer.read_head();
    loop.stop();
    co_await peer.read_to_end();
  });
  ConnectionPtr connection;
  const auto body = [&]() -> awaitable<void> {
    const ConnectionPtr own = co_await open(server.origin());
    co_await ask_head(*own);
  };
  loop::spawn(loop, body(), nullptr, signal_.slot());
  loop.run();
}

// TLS. The steps are those of net::Stream; these tests cover what may differ.

class HttpsConnection : public HttpCancellation {
 protected:
  HttpsConnection() { files_.ca.clear(); }

  Origin origin_of(const net::test::TlsServer& server) const {
    Origin origin;
    origin.address = {"127.0.0.1", server.port()};
    origin.tls = net::TlsFiles{authority_.ca(), "", ""};
    return origin;
  }

  fo::test::Authority authority_;
  net::TlsFiles files_ = authority_.issue("IP:127.0.0.1");
};

TEST_F(HttpsConnection, ReadsWhatComesAfterADeadline) {
  using Stop = net::test::TlsServer::Stop;
  const net::test::TlsServer::Behaviour behaviour{.stop = Stop::kRequestRead};
  const net::test::TlsServer silent(loop_.io().get_executor(), net::make_tls_server(files_),
                                    behaviour);
  const net::test::TlsServer server(loop_.io().get_executor(), net::make_tls_server(files_), {});
  const auto body = [&](Origin origin, bool answers) -> awaitable<void> {
    const ConnectionPtr connection = co_await open(std::move(origin));
    int timeouts = 0;
    for (int i = 0; i < 3; ++i) {
      try {
        // No answer can arrive before the request.
        co_await connection->read_head(in_ms(5));
      } catch (const Error& error) {
        timeouts += error.status() == ExitStatus::kTryAgain ? 1 : 0;
      }
    }
    EXPECT_EQ(timeouts, 3);
    co_await send(*connection);
    if (!answers) co_return;
    const ResponseHead answer = co_await connection->read_head(soon());
    EXPECT_EQ(answer.status, 200);
    const std::string text = co_await read_all(*connection);
    EXPECT_EQ(text, "hi");
  };
  loop_.run(body(origin_of(server), true));
  loop_.run(body(origin_of(silent), false));
}

TEST_F(HttpsConnection, ADeadlineInTheHandshakeTimesOut) {
  const net::test::TlsServer::Behaviour behaviour{.stop = net::test::TlsServer::Stop::kAccepted};
  const net::test::TlsServer server(loop_.io().get_executor(), net::make_tls_server(files_),
                                    behaviour);
  const auto handshake = [&] { loop_.run(open(origin_of(server), in_ms(20))); };
  EXPECT_EQ(fo::test::status_of(handshake), ExitStatus::kTryAgain);
}

TEST_F(HttpsConnection, IsAliveUntilTheServerCloses) {
  const net::test::TlsServer::Behaviour behaviour{.stop = net::test::TlsServer::Stop::kAnswered,
                                                  .answer = kOk};
  const net::test::TlsServer server(loop_.io().get_executor(), net::make_tls_server(files_),
                                    behaviour);
  const auto body = [&](Origin origin) -> awaitable<void> {
    const ConnectionPtr connection = co_await open(std::move(origin));
    const std::string text = co_await ask(*connection);
    EXPECT_EQ(text, "hi");
    EXPECT_TRUE(connection->is_reusable());
    co_await wait_for_death(*connection);
  };
  loop_.run(body(origin_of(server)));
}

TEST(HttpOrigin, HttpsNeedsAnAuthority) {
  const net::Url url = net::parse_url("https://localhost:1/");
  EXPECT_THROW(make_origin(url, std::nullopt), Error);
  EXPECT_EQ(make_origin(url, net::TlsFiles{"ca", "", ""}).tls->ca, "ca");
  // Files for a URL without TLS are ignored.
  EXPECT_EQ(make_origin(net::parse_url("http://localhost:1/"), net::TlsFiles{"ca", "", ""}).tls,
            std::nullopt);
}

}  // namespace
}  // namespace fo::http::test
