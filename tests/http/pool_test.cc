#include "http/pool.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "scripted_server.h"
#include "support.h"
#include "support/fds.h"
#include "support/temp_dir.h"

namespace fo::http::test {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;
using fo::test::in_ms;
using fo::test::soon;
using fo::test::status_of;
using Lease = Pool::Lease;

class HttpPool : public fo::test::FdCounting {
 protected:
  /// Answers each request with the number of the connection.
  static awaitable<void> serve(Peer& peer, int number) {
    for (;;) {
      const std::string head = co_await peer.read_head();
      if (head.empty()) co_return;
      const std::string body = std::to_string(number);
      co_await peer.write("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) +
                          "\r\n\r\n" + body);
    }
  }

  /// Sends a request and reads the whole answer.
  static awaitable<std::string> ask(Connection& connection) {
    RequestHead head;
    co_await connection.send(std::move(head), "", soon());
    co_await connection.read_head(soon());
    std::string body;
    std::array<char, 100> space;
    for (;;) {
      const std::size_t count = co_await connection.read_some(space, soon());
      if (count == 0) co_return body;
      body.append(space.data(), count);
    }
  }
  static awaitable<Lease> get(Pool& pool, const ScriptedServer& server,
                              Deadline deadline = Deadline::never()) {
    Origin origin = server.origin();
    const std::string what = "ask it";
    return pool.get(std::move(origin), deadline, what);
  }
  /// Sends a request on a connection of the pool, and returns the connection.
  static awaitable<std::string> ask(Pool& pool, const ScriptedServer& server) {
    const Lease lease = co_await get(pool, server, soon());
    std::string body = co_await ask(*lease);
    co_return body;
  }
  static awaitable<void> pause(base::Duration time) {
    boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor, time);
    co_await timer.async_wait(boost::asio::use_awaitable);
  }

  void run(std::function<awaitable<void>(Pool&, ScriptedServer&)> body,
           const PoolLimits& limits = {}, const ScriptedServer::Script& script = serve) {
    ScriptedServer server(loop_.io().get_executor(), script);
    {
      Pool pool(loop_.io().get_executor(), limits);
      loop_.run(body(pool, server));
      EXPECT_EQ(pool.busy(), 0U);
    }
    server.stop();
    loop_.run_until([&] { return server.ended() == server.connections(); });
  }

  fo::test::TestLoop loop_;
};

TEST_F(HttpPool, KeepsAConnectionForTheNextRequest) {
  run([](Pool& pool, ScriptedServer& server) -> awaitable<void> {
    for (int i = 0; i < 5; ++i) {
      const std::string body = co_await ask(pool, server);
      EXPECT_EQ(body, "1");
      EXPECT_EQ(pool.idle(), 1U);
    }
    EXPECT_EQ(server.connections(), 1);
  });
}

TEST_F(HttpPool, ConnectionsInUseAreNotShared) {
  run([](Pool& pool, ScriptedServer& server) -> awaitable<void> {
    Lease one = co_await get(pool, server);
    Lease two = co_await get(pool, server);
    EXPECT_EQ(pool.busy(), 2U);
    const std::string first = co_await ask(*one);
    const std::string second = co_await ask(*two);
    EXPECT_NE(first, second);
    one.reset();
    two.reset();
    EXPECT_EQ(pool.idle(), 2U);
    // The pool returns the most recently used one.
    const std::string third = co_await ask(pool, server);
    EXPECT_EQ(third, second);
  });
}

TEST_F(HttpPool, AnAnswerThatWasNotReadToItsEndClosesTheConnection) {
  run([](Pool& pool, ScriptedServer& server) -> awaitable<void> {
    {
      const Lease lease = co_await get(pool, server);
      RequestHead head;
      co_await lease->send(std::move(head), "", soon());
      co_await lease->read_head(soon());
    }
    EXPECT_EQ(pool.idle(), 0U);
    {
      const Lease lease = co_await get(pool, server);
      RequestHead head;
      co_await lease->send(std::move(head), "", soon());
      co_await lease->read_head(soon());
      co_await lease->finish(soon());
    }
    EXPECT_EQ(pool.idle(), 1U);
  });
}

TEST_F(HttpPool, ConnectionsThatWereNotUsedAreClosed) {
  run([](Pool& pool, ScriptedServer& server) -> awaitable<void> {
    Lease lease = co_await get(pool, server);
    lease.reset();
    EXPECT_EQ(pool.idle(), 0U);
  });
}

TEST_F(HttpPool, KeepsSoManyOfAnOrigin) {
  PoolLimits limits;
  limits.idle_per_origin = 2;
  run(
      [](Pool& pool, ScriptedServer& server) -> awaitable<void> {
        std::vector<Lease> leases(5);
        for (Lease& lease : leases) {
          lease = co_await get(pool, server);
          co_await ask(*lease);
        }
        leases.clear();
        EXPECT_EQ(pool.idle(), 2U);
      },
      limits);
}

TEST_F(HttpPool, OriginsAreKeptApart) {
  const fo::test::TempDir dir;
  ScriptedServer other(loop_.io().get_executor(), serve);
  run([&](Pool& pool, ScriptedServer& server) -> awaitable<void> {
    co_await ask(pool, server);
    co_await ask(pool, other);
    EXPECT_EQ(other.connections(), 1);
    EXPECT_EQ(pool.idle(), 2U);
    // The same host and port with other name servers.
    Origin named = server.origin();
    named.name_servers = "127.0.0.1:53";
    const std::string what = "ask it";
    Lease lease = co_await pool.get(std::move(named), soon(), what);
    EXPECT_FALSE(lease->is_alive());
    EXPECT_EQ(pool.idle(), 2U);
    lease.reset();
    Origin secret = server.origin();
    secret.tls = net::TlsFiles{dir.path("none"), "", ""};
    ExitStatus status = ExitStatus::kOk;
    try {
      lease = co_await pool.get(std::move(secret), soon(), what);
    } catch (const Error& error) {
      status = error.status();
    }
    EXPECT_EQ(status, ExitStatus::kNoInput) << "it has no connection in the clear instead";
  });
  other.stop();
}

TEST_F(HttpPool, IdleConnectionsAreClosedInTime) {
  PoolLimits limits;
  limits.idle_time = std::chrono::milliseconds(20);
  run(
      [](Pool& pool, ScriptedServer& server) -> awaitable<void> {
        co_await ask(pool, server);
        EXPECT_EQ(pool.idle(), 1U);
        while (pool.idle() > 0) co_await pause(std::chrono::milliseconds(1));
        while (server.ended() == 0) co_await pause(std::chrono::milliseconds(1));
        const std::string body = co_await ask(pool, server);
        EXPECT_EQ(body, "2");
        while (pool.idle() > 0) co_await pause(std::chrono::milliseconds(1));
      },
      limits);
}

TEST_F(HttpPool, OldConnectionsAreNotKept) {
  PoolLimits limits;
  limits.age = std::chrono::milliseconds(20);
  limits.idle_time = std::chrono::hours(1);
  run(
      [](Pool& pool, ScriptedServer& server) -> awaitable<void> {
        Lease lease = co_await get(pool, server);
        co_await pause(std::chrono::milliseconds(30));
        co_await ask(*lease);
        lease.reset();
        EXPECT_EQ(pool.idle(), 0U);
        // A connection becomes too old while it is idle.
        co_await ask(pool, server);
        co_await pause(std::chrono::milliseconds(30));
        const std::string body = co_await ask(pool, server);
        EXPECT_EQ(body, "3");
      },
      limits);
}

TEST_F(HttpPool, DeadConnectionsAreNoticedBeforeUse) {
  run(
      [](Pool& pool, ScriptedServer& server) -> awaitable<void> {
        for (int i = 1; i <= 5; ++i) {
          const std::string body = co_await ask(pool, server);
          EXPECT_EQ(body, std::to_string(i));
          EXPECT_EQ(pool.idle(), 1U);
          while (server.ended() < i) co_await pause(std::chrono::milliseconds(1));
        }
      },
      {},
      [](Peer& peer, int number) -> awaitable<void> {
        co_await peer.read_head();
        co_await peer.write("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" +
                            std::to_string(number));
        // The server closes without sending anything.
      });
}

TEST_F(HttpPool, AConnectionThatDiesUnderARequestIsReplaced) {
  run(
      [](Pool& pool, ScriptedServer& server) -> awaitable<void> {
        co_await ask(pool, server);
        // The server reads the request and does not answer it.
        Lease lease = co_await get(pool, server);
        EXPECT_TRUE(lease->is_alive());
        const ExitStatus status = co_await status_of(ask(*lease));
        EXPECT_EQ(status, ExitStatus::kUnavailable);
        Origin origin = server.origin();
        const std::string what = "ask it";
        lease = co_await pool.open(std::move(origin), soon(), what);
        const std::string body = co_await ask(*lease);
        EXPECT_EQ(body, "2");
      },
      {},
      [](Peer& peer, int number) -> awaitable<void> {
        co_await peer.read_head();
        co_await peer.write("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" +
                            std::to_string(number));
        co_await peer.read_head();
      });
}

TEST_F(HttpPool, AFurtherConnectionTakesTheOldestIdleOnesPlace) {
  PoolLimits limits;
  limits.connections = 2;
  ScriptedServer other(loop_.io().get_executor(), serve);
  run(
      [&](Pool& pool, ScriptedServer& server) -> awaitable<void> {
        co_await ask(pool, server);
        Lease lease = co_await get(pool, other);
        co_await ask(*lease);
        const Lease further = co_await get(pool, other);
        EXPECT_EQ(pool.idle(), 0U);
        EXPECT_EQ(pool.busy(), 2U);
      },
      limits);
  other.stop();
}

TEST_F(HttpPool, WhoeverWantsMoreThanThereMayBeWaitsForOneToComeFree) {
  PoolLimits limits;
  limits.connections = 1;
  run(
      [](Pool& pool, ScriptedServer& server) -> awaitable<void> {
        Lease lease = co_await get(pool, server);
        co_await ask(*lease);
        const ExitStatus status = co_await status_of(get(pool, server, in_ms(10)));
        EXPECT_EQ(status, ExitStatus::kTryAgain);
        boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor,
                                        std::chrono::milliseconds(10));
        timer.async_wait([&](const boost::system::error_code&) { lease.reset(); });
        const Lease next = co_await get(pool, server, soon());
        const std::string body = co_await ask(*next);
        EXPECT_EQ(body, "1") << "it is the one that came free";
      },
      limits);
}

TEST_F(HttpPool, AFailureToConnectIsNoConnectionInUse) {
  run([](Pool& pool, ScriptedServer& server) -> awaitable<void> {
    server.stop();
    co_await pause(std::chrono::milliseconds(1));
    Origin nobody;
    nobody.socket_path = "/nonexistent/s";
    const std::string what = "ask it";
    const ExitStatus status = co_await status_of(pool.get(std::move(nobody), soon(), what));
    EXPECT_EQ(status, ExitStatus::kUnavailable);
    EXPECT_EQ(pool.busy(), 0U);
  });
}

TEST_F(HttpPool, AConnectionMayOutliveThePool) {
  ScriptedServer server(loop_.io().get_executor(), serve);
  auto pool = std::make_unique<Pool>(loop_.io().get_executor());
  Lease lease = loop_.run(get(*pool, server));
  Lease idle = loop_.run(get(*pool, server));
  loop_.run(ask(*idle));
  idle.reset();
  EXPECT_EQ(pool->idle(), 1U);
  pool.reset();
  EXPECT_EQ(loop_.run(ask(*lease)), "1");
  lease.reset();
  server.stop();
  loop_.run_until([&] { return server.ended() == 2; });
}

TEST_F(HttpPool, AWaitMayOutliveThePool) {
  PoolLimits limits;
  limits.connections = 1;
  ScriptedServer server(loop_.io().get_executor(), serve);
  auto pool = std::make_unique<Pool>(loop_.io().get_executor(), limits);
  Lease lease = loop_.run(get(*pool, server));
  loop_.run(ask(*lease));
  std::optional<Lease> next;
  bool is_over = false;
  loop::spawn(loop_.io(), loop::store(get(*pool, server, soon()), next),
              [&](const std::exception_ptr&) { is_over = true; });
  loop_.io().restart();
  loop_.io().poll();
  EXPECT_FALSE(is_over);
  // The connection becomes an idle one, and the pool ends before the wait does.
  lease.reset();
  pool.reset();
  loop_.run_until([&] { return is_over; });
  ASSERT_TRUE(next);
  next.reset();
  server.stop();
  loop_.run_until([&] { return server.ended() == 2; });
}

TEST_F(HttpPool, CancelledWaitsLeaveNothingBehind) {
  PoolLimits limits;
  limits.connections = 1;
  ScriptedServer server(loop_.io().get_executor(), serve);
  Pool pool(loop_.io().get_executor(), limits);
  Lease lease = loop_.run(get(pool, server));
  boost::asio::cancellation_signal signal;
  bool is_over = false;
  std::exception_ptr failure;
  std::optional<Lease> next;
  loop::spawn(
      loop_.io(), loop::store(get(pool, server), next),
      [&](std::exception_ptr thrown) {
        failure = std::move(thrown);
        is_over = true;
      },
      signal.slot());
  boost::asio::post(loop_.io(), [&] { signal.emit(boost::asio::cancellation_type::terminal); });
  loop_.run_until([&] { return is_over; });
  EXPECT_TRUE(failure);
  EXPECT_EQ(pool.busy(), 1U);
  lease.reset();
  EXPECT_EQ(pool.busy(), 0U);
  server.stop();
  loop_.run_until([&] { return server.ended() == 1; });
}

TEST_F(HttpPool, ManyAtOnceWithConnectionsThatDie) {
  // Each third answer ends its connection, with or without announcing it, and each seventh is
  // truncated.
  int answers = 0;
  const auto script = [&](Peer& peer, int) -> awaitable<void> {
    for (;;) {
      const std::string head = co_await peer.read_head();
      if (head.empty()) co_return;
      ++answers;
      if (answers % 7 == 0) co_return;
      const bool says_so = answers % 2 == 0;
      const bool ends = answers % 3 == 0;
      co_await peer.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" +
                          std::string(ends && says_so ? "Connection: close\r\n" : "") + "\r\nhi");
      if (ends) co_return;
    }
  };
  int good = 0;
  int retried = 0;
  int lost = 0;
  PoolLimits limits;
  limits.connections = 10;
  run(
      [&](Pool& pool, ScriptedServer& server) -> awaitable<void> {
        int left = 20;
        const auto client = [&]() -> awaitable<void> {
          for (int i = 0; i < 50; ++i) {
            Lease lease = co_await get(pool, server, soon());
            try {
              const std::string body = co_await ask(*lease);
              EXPECT_EQ(body, "hi");
              ++good;
            } catch (const Error& error) {
              EXPECT_EQ(error.status(), ExitStatus::kUnavailable) << error.what();
              const bool is_to_be_retried =
                  lease->is_reused() && lease->progress() != Connection::Progress::kAnswered;
              ++(is_to_be_retried ? retried : lost);
            }
          }
          --left;
        };
        const auto executor = co_await boost::asio::this_coro::executor;
        for (int i = 0; i < 20; ++i) {
          loop::spawn(executor, client());
        }
        while (left > 0) co_await pause(std::chrono::milliseconds(1));
        EXPECT_LE(pool.idle(), 10U);
      },
      limits, script);
  EXPECT_EQ(good + retried + lost, 1000);
  EXPECT_GT(good, 500);
  EXPECT_GT(retried, 0);
}

}  // namespace
}  // namespace fo::http::test
