#include "engine/status_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <list>
#include <nlohmann/json.hpp>

#include "engine/status_socket.h"
#include "http/client.h"
#include "http/support.h"
#include "os/process/process.h"
#include "os/socket/unix_socket.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/temp_dir.h"

namespace fo::engine {
namespace {

using namespace std::chrono_literals;
using base::ExitStatus;
using boost::asio::awaitable;
using http::fetch;
using http::Response;
using http::test::RawClient;
using http::test::soon;
using test::failure_of;
using testing::HasSubstr;
using testing::StartsWith;

/// The answers of the engine's host; changed and read only on the loop's thread.
struct Host {
  bool ready = true;
  std::string refusal;
  int switched = 0;
  /// If set, a switchover takes until it is cancelled.
  std::shared_ptr<boost::asio::steady_timer> hold;
};

awaitable<std::string> switch_over(std::shared_ptr<Host> host) {
  ++host->switched;
  if (host->hold) {
    boost::system::error_code ignored;
    co_await host->hold->async_wait(
        boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
    ++host->switched;
  }
  if (!host->refusal.empty()) throw base::Error(ExitStatus::kTryAgain, host->refusal);
  co_return std::string(R"({"result":"accepted"})");
}

StatusSource source_of(const std::shared_ptr<Host>& host) {
  StatusSource source;
  source.health = [host] {
    return HealthAnswer{host->ready,
                        host->ready ? R"({"status":"ready"})" : R"({"status":"notready"})"};
  };
  source.metrics = [] { return std::string("fo_x 1\n"); };
  source.status = [] { return std::string(R"({"state":"active"})"); };
  source.switch_over = [host] { return switch_over(host); };
  return source;
}

class Status : public testing::Test {
 protected:
  /// Runs `function` on the loop's thread.
  template <typename Function>
  auto call(Function function) {
    return loop_.call(std::move(function));
  }

  Status() : Status(status_limits()) {}
  explicit Status(const http::ServerLimits& limits)
      : server_(std::make_unique<StatusServer>(loop_.executor(), source_of(host_), limits)),
        port_(server_->listen("127.0.0.1:0")) {
    server_->listen_unix(socket());
    loop_.start();
  }
  ~Status() override {
    call([this] { server_.reset(); });
  }

  [[nodiscard]] std::string socket() const { return dir_.path("lock.engine-0.sock"); }
  [[nodiscard]] std::string tcp(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  [[nodiscard]] std::string local(const std::string& path) const {
    return "unix:" + socket() + ":" + path;
  }

  test::TempDir dir_;
  http::test::ThreadLoop loop_;
  std::shared_ptr<Host> host_ = std::make_shared<Host>();
  std::unique_ptr<StatusServer> server_;
  std::uint16_t port_;
};

TEST_F(Status, LiveHealthAndReadyGiveOneAnswer) {
  for (const bool ready : {true, false}) {
    call([&] { host_->ready = ready; });
    for (const std::string& url :
         {tcp("/live"), tcp("/health"), tcp("/ready"), tcp("/live?verbose=1"), local("/live"),
          local("/health"), local("/ready")}) {
      const Response response = fetch("GET", url, soon());
      EXPECT_EQ(response.status, ready ? 200 : 503) << url;
      EXPECT_EQ(response.content_type, "application/json");
      EXPECT_EQ(response.body, ready ? R"({"status":"ready"})" : R"({"status":"notready"})");
      const Response head = fetch("HEAD", url, soon());
      EXPECT_EQ(head.status, ready ? 200 : 503);
      EXPECT_EQ(head.body, "");
    }
  }
}

TEST_F(Status, MetricsAreInPrometheusFormat) {
  const Response response = fetch("GET", tcp("/metrics"), soon());
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(response.body, "fo_x 1\n");
}

TEST_F(Status, StatusIsWhatTheHostSays) {
  for (const std::string& url : {tcp("/status"), local("/status")}) {
    const Response response = fetch("GET", url, soon());
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.content_type, "application/json");
    EXPECT_EQ(response.body, R"({"state":"active"})");
  }
}

TEST_F(Status, OtherPathsAre404AndOtherMethods405) {
  for (const char* path : {"/", "/livez", "/live/", "/LIVE", "/metrics/x", "/switchover/"}) {
    EXPECT_EQ(fetch("GET", tcp(path), soon()).status, 404) << path;
    EXPECT_EQ(fetch("POST", local(path), soon()).status, 404) << path;
  }
  for (const char* path : {"/live", "/health", "/ready", "/metrics", "/status"}) {
    for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "BREW"}) {
      const Response response = fetch(method, local(path), soon());
      EXPECT_EQ(response.status, 405) << method << " " << path;
      EXPECT_EQ(response.header("Allow"), "GET, HEAD");
    }
  }
  for (const char* method : {"GET", "HEAD", "PUT"}) {
    const Response response = fetch(method, local("/switchover"), soon());
    EXPECT_EQ(response.status, 405) << method;
    EXPECT_EQ(response.header("Allow"), "POST");
  }
  EXPECT_EQ(call([&] { return host_->switched; }), 0);
}

TEST_F(Status, OnlyTheUnixSocketSwitchesOver) {
  const Response refused = fetch("POST", tcp("/switchover"), soon());
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(call([&] { return host_->switched; }), 0);
  const Response done = fetch("POST", local("/switchover"), soon());
  EXPECT_EQ(done.status, 202);
  EXPECT_EQ(done.body, R"({"result":"accepted"})");
  EXPECT_EQ(call([&] { return host_->switched; }), 1);
}

TEST_F(Status, ASwitchOverThatIsRefusedSaysWhy) {
  call([&] { host_->refusal = "switch over: not active"; });
  const Response response = fetch("POST", local("/switchover"), soon());
  EXPECT_EQ(response.status, 409);
  EXPECT_EQ(nlohmann::json::parse(response.body).at("error").at("message"),
            "switch over: not active");
}

TEST_F(Status, ASwitchOverHoldsNoProbeUpAndOutlivesWhoAskedForItAndTheServer) {
  call([&] {
    host_->hold = std::make_shared<boost::asio::steady_timer>(
        loop_.executor(), boost::asio::steady_timer::time_point::max());
  });
  {
    const base::UniqueFd asking = os::connect_unix(socket(), soon());
    const std::string_view request = "POST /switchover HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
    ASSERT_EQ(::send(asking.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    const base::Deadline deadline = soon();
    while (call([&] { return host_->switched; }) == 0) ASSERT_FALSE(deadline.expired());
    EXPECT_EQ(fetch("GET", tcp("/live"), soon()).status, 200);
    EXPECT_EQ(fetch("GET", local("/live"), soon()).status, 200);
  }
  call([&] { server_.reset(); });
  call([&] { host_->hold->cancel(); });
  const base::Deadline deadline = soon();
  while (call([&] { return host_->switched; }) == 1) ASSERT_FALSE(deadline.expired());
}

/// A server whose timeouts are longer than any probe of a test waits.
class PatientStatus : public Status {
 protected:
  PatientStatus() : Status(limits()) {}
  explicit PatientStatus(std::size_t connections) : Status(limits(connections)) {}

 private:
  static http::ServerLimits limits(std::size_t connections = status_limits().connections) {
    http::ServerLimits limits = status_limits();
    limits.connections = connections;
    limits.header_timeout = 1h;
    limits.body_timeout = 1h;
    limits.idle_timeout = 1h;
    limits.write_timeout = 1h;
    return limits;
  }
};

TEST_F(PatientStatus, HundredsOfIdleAndDribblingConnectionsDisturbNoProbe) {
  os::raise_fd_limit();
  std::list<RawClient> clients;
  std::list<base::UniqueFd> local_clients;
  for (int i = 0; i < 500; ++i) {
    clients.emplace_back(port_);
    if (i % 5 == 0) local_clients.push_back(os::connect_unix(socket(), soon()));
  }
  const auto probe = [&] {
    EXPECT_EQ(fetch("GET", tcp("/live"), soon()).status, 200);
    EXPECT_EQ(fetch("GET", local("/health"), soon()).status, 200);
    EXPECT_EQ(fetch("GET", tcp("/metrics"), soon()).body, "fo_x 1\n");
  };
  probe();
  std::list<RawClient> slow;
  for (int i = 0; i < 200; ++i) slow.emplace_back(port_);
  for (const char c : std::string("GET /live HTTP/1.1\r\nHost: x\r\nX: ")) {
    for (const RawClient& client : slow) client.send(std::string_view(&c, 1));
    probe();
  }
  // Clients that send garbage or too much, or disconnect, do not disturb probes either.
  for (int i = 0; i < 50; ++i) {
    RawClient(port_).send("GET /live");
    RawClient(port_).send("\r\n\x01\x02garbage\r\n\r\n");
    RawClient(port_).send("POST /live HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n");
  }
  probe();
}

/// A server with few connections and long timeouts.
class CrowdedStatus : public PatientStatus {
 protected:
  CrowdedStatus() : PatientStatus(20) {}
};

TEST_F(CrowdedStatus, MoreConnectionsThanItHasPlacesForDisturbNoProbe) {
  std::list<RawClient> clients;
  std::list<base::UniqueFd> local_clients;
  for (const char* said :
       {"", "GET /live HTTP/1.1\r\nX: ", "POST /live HTTP/1.1\r\nContent-Length: 9\r\n\r\n"}) {
    for (int i = 0; i < 60; ++i) {
      clients.emplace_back(port_);
      clients.back().send(said);
      local_clients.push_back(os::connect_unix(socket(), soon()));
    }
    EXPECT_EQ(fetch("GET", tcp("/live"), soon()).status, 200) << said;
    EXPECT_EQ(fetch("GET", local("/health"), soon()).status, 200) << said;
  }
}

TEST_F(Status, AnIdleConnectionIsClosedAndSoIsADribblingOne) {
  RawClient idle(port_);
  RawClient slow(port_);
  slow.send("GET /live HTTP/1.1\r\nX: ");
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_EQ(slow.read_to_end(), "");
}

TEST_F(Status, ABodyOrAHeaderThatIsTooLongIsRefused) {
  RawClient body(port_);
  body.send("POST /live HTTP/1.1\r\nContent-Length: 5000\r\n\r\n");
  EXPECT_THAT(body.read_until("\r\n"), StartsWith("HTTP/1.1 413 "));
  RawClient header(port_);
  header.send("GET /live HTTP/1.1\r\nX: " + std::string(9000, 'x') + "\r\n\r\n");
  EXPECT_THAT(header.read_until("\r\n"), StartsWith("HTTP/1.1 431 "));
}

TEST_F(Status, TheSocketIsForItsUserAloneAndGoesWithTheServer) {
  struct stat info {};
  ASSERT_EQ(::stat(socket().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  const auto failure = failure_of([&] {
    boost::asio::io_context loop;
    StatusServer second(loop.get_executor(), source_of(host_));
    second.listen_unix(socket());
  });
  EXPECT_EQ(failure.status, ExitStatus::kCannotCreate);
  EXPECT_EQ(failure.message, "serve socket '" + socket() + "': another server uses it");
  EXPECT_EQ(fetch("GET", local("/live"), soon()).status, 200);
  call([&] { server_.reset(); });
  EXPECT_NE(::access(socket().c_str(), F_OK), 0);
}

TEST(StatusServer, TakesADeadServersSocketOver) {
  const test::TempDir dir;
  { const base::UniqueFd dead = os::listen_unix(dir.path("s")); }
  const std::ptrdiff_t before = test::open_fds();
  {
    boost::asio::io_context loop;
    StatusServer server(loop.get_executor(), source_of(std::make_shared<Host>()));
    server.listen_unix(dir.path("s"));
    EXPECT_TRUE(os::is_socket_live(dir.path("s")));
  }
  EXPECT_EQ(test::open_fds(), before);
}

TEST(StatusServer, SaysWhyItCannotListen) {
  boost::asio::io_context loop;
  StatusServer server(loop.get_executor(), source_of(std::make_shared<Host>()));
  const std::uint16_t port = server.listen("127.0.0.1:0");
  const auto failure = failure_of([&] { server.listen("127.0.0.1:" + std::to_string(port)); });
  EXPECT_EQ(failure.status, ExitStatus::kCannotCreate);
  EXPECT_THAT(failure.message, HasSubstr("Address already in use"));
}

TEST(StatusSocket, IsBesideTheLock) {
  EXPECT_EQ(status_socket_path({lock::LockUri::Kind::kFlock, "/shared/failover.lock"}, "engine-0"),
            "/shared/failover.lock.engine-0.sock");
  for (const char* id : {"", "a\nb", "\xff"}) {
    EXPECT_EQ(failure_of([&] { status_socket_path({{}, "/l"}, id); }).status, ExitStatus::kConfig);
  }
  EXPECT_EQ(failure_of([] {
              status_socket_path({{}, "/l"}, "../x");
            }).message,
            "use status socket '/l.../x.sock': a slash in the engine's id");
  EXPECT_EQ(failure_of([] {
              status_socket_path({{}, "/l"}, "pod:0");
            }).message,
            "use status socket '/l.pod:0.sock': a colon in the path");
}

}  // namespace
}  // namespace fo::engine
