#include "engine/status_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>

#include "engine/status_socket.h"
#include "http/client.h"
#include "http/support.h"
#include "os/socket/unix_socket.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::engine {
namespace {

using base::ExitStatus;
using boost::asio::awaitable;
using http::fetch;
using http::Response;
using http::test::RawClient;
using http::test::soon;
using test::failure_of;
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

  Status()
      : server_(std::make_unique<StatusServer>(loop_.executor(), source_of(host_))),
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

TEST_F(Status, ASwitchOverIsAPost) {
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
    const std::string_view request =
        "POST /switchover HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    ASSERT_EQ(::send(asking.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    test::await([&] { return call([&] { return host_->switched; }) > 0; });
    EXPECT_EQ(fetch("GET", tcp("/live"), soon()).status, 200);
    EXPECT_EQ(fetch("GET", local("/live"), soon()).status, 200);
  }
  call([&] { server_.reset(); });
  call([&] { host_->hold->cancel(); });
  test::await([&] { return call([&] { return host_->switched; }) > 1; });
}

TEST_F(Status, AnIdleConnectionIsClosedAndSoIsADribblingOne) {
  RawClient idle(port_);
  RawClient slow(port_);
  slow.send("GET /live HTTP/1.1\r\nHost: x\r\nX: ");
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_EQ(slow.read_to_end(), "");
}

TEST_F(Status, ABodyOrAHeaderThatIsTooLongIsRefused) {
  RawClient body(port_);
  body.send("POST /live HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n");
  EXPECT_THAT(body.read_until("\r\n"), StartsWith("HTTP/1.1 413 "));
  RawClient header(port_);
  header.send("GET /live HTTP/1.1\r\nHost: x\r\nX: " + std::string(9000, 'x') + "\r\n\r\n");
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
