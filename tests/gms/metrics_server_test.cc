#include "gms/metrics_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "http/client.h"
#include "http/prometheus_text.h"
#include "os/process.h"
#include "support/fds.h"

namespace fo::gms {
namespace {

using testing::HasSubstr;

base::Deadline soon() { return base::Deadline::after(std::chrono::seconds(20)); }

// The server in a process of its own, as gms-serve has it.
class MetricsServer : public test::FdCounting {
 protected:
  void start(const http::ServerLimits& limits = metrics_limits()) {
    http::Listener listener = http::listen_tcp("127.0.0.1:0");
    base_ = "http://127.0.0.1:" + std::to_string(listener.port);
    port_ = listener.port;
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    base::UniqueFd stop(ends[0]);
    stop_.reset(ends[1]);
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    child_ = os::fork_child(
        [&] {
          stop_.reset();
          run_metrics_server(std::move(listener.fd), {{0, "GPU-1", "weights", &*page_}}, stop.get(),
                             limits);
          return 0;
        },
        options);
  }
  /// Its exit status; -1 when it does not end.
  int stop() {
    stop_.reset();
    const int status = child_->wait(soon()).value_or(-1);
    child_.reset();
    return status;
  }
  void TearDown() override {
    if (!child_) return;
    child_->signal(SIGKILL);
    EXPECT_TRUE(child_->wait(soon()));
    child_.reset();
    stop_.reset();
  }
  [[nodiscard]] http::Response get(const std::string& path, const char* method = "GET") const {
    return http::fetch(method, base_ + path, soon());
  }
  [[nodiscard]] base::UniqueFd connect() const {
    base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  /// Whether the server closes this connection.
  static bool is_closed(const base::UniqueFd& fd) {
    char bytes[4096];
    for (;;) {
      pollfd event{fd.get(), POLLIN, 0};
      if (::poll(&event, 1, soon().poll_timeout()) != 1) return false;
      if (::recv(fd.get(), bytes, sizeof bytes, 0) <= 0) return true;
    }
  }

  // Made per test, so that the count of descriptors has nothing of it.
  CounterPage page_ = CounterPage::create();
  std::string base_;
  std::uint16_t port_ = 0;
  base::UniqueFd stop_;
  std::optional<os::Child> child_;
};

TEST_F(MetricsServer, ShowsWhatAnotherProcessCounts) {
  start();
  const http::Response first = get("/metrics");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.content_type, http::kPrometheusTextType);
  EXPECT_THAT(first.body,
              HasSubstr("\ngms_commits_total{device=\"0\",uuid=\"GPU-1\",tag=\"weights\"} 0\n"));
  page_->commits.add(2);
  EXPECT_THAT(get("/metrics?x=1").body,
              HasSubstr("\ngms_commits_total{device=\"0\",uuid=\"GPU-1\",tag=\"weights\"} 2\n"));
  EXPECT_EQ(stop(), 0);
}

TEST_F(MetricsServer, NothingElseIsThere) {
  start();
  EXPECT_EQ(get("/").status, 404);
  EXPECT_EQ(get("/metrics/").status, 404);
  const http::Response posted = get("/metrics", "POST");
  EXPECT_EQ(posted.status, 405);
  EXPECT_EQ(posted.header("Allow"), "GET, HEAD");
  EXPECT_EQ(get("/metrics", "HEAD").status, 200);
  EXPECT_EQ(stop(), 0);
}

TEST_F(MetricsServer, SilentAndDribblingClientsHoldNobodyUpAndAreCutOff) {
  http::ServerLimits limits = metrics_limits();
  limits.idle_timeout = limits.header_timeout = std::chrono::milliseconds(50);
  start(limits);
  std::vector<base::UniqueFd> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(connect());
    if (i % 2 == 0) continue;
    ASSERT_EQ(::send(clients.back().get(), "GET ", 4, MSG_NOSIGNAL), 4);
  }
  EXPECT_EQ(get("/metrics").status, 200);
  for (const base::UniqueFd& client : clients) EXPECT_TRUE(is_closed(client));
  EXPECT_EQ(stop(), 0);
}

TEST_F(MetricsServer, ConnectionsAreBounded) {
  http::ServerLimits limits = metrics_limits();
  limits.connections = 2;
  limits.idle_timeout = std::chrono::minutes(1);
  start(limits);
  const base::UniqueFd one = connect();
  const base::UniqueFd two = connect();
  // They are accepted in order.
  EXPECT_EQ(get("/metrics").status, 503);
  EXPECT_EQ(stop(), 0);
}

TEST_F(MetricsServer, EndsAtOnceWithIdleClients) {
  http::ServerLimits limits = metrics_limits();
  limits.idle_timeout = std::chrono::minutes(1);
  start(limits);
  const base::UniqueFd idle = connect();
  EXPECT_EQ(get("/metrics").status, 200);
  EXPECT_EQ(stop(), 0);
  EXPECT_TRUE(is_closed(idle));
}

TEST_F(MetricsServer, StopThatIsThereBeforeTheStartCounts) {
  start();
  EXPECT_EQ(stop(), 0);
}

}  // namespace
}  // namespace fo::gms
