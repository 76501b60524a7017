#include "gms/server/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <optional>
#include <string>

#include "gms/gms_process.h"
#include "http/client.h"
#include "http/support.h"
#include "metrics/prometheus_text.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "support/fds.h"

namespace fo::gms {
namespace {

using testing::HasSubstr;

// The server in its own process, as in gms-serve.
class MetricsServer : public test::FdCounting {
 protected:
  void start() {
    http::Listener listener = http::listen_tcp("127.0.0.1:0");
    base_ = "http://127.0.0.1:" + std::to_string(listener.port);
    port_ = listener.port;
    os::Pipe stop;
    stop_ = std::move(stop.writer);
    child_ = os::fork_child(
        [&] {
          stop_.reset();
          run_metrics_server(std::move(listener.fd),
                             {{base::DeviceOrdinal(0), base::GpuUuid("GPU-1"), "weights", &*page_}},
                             stop.reader.get());
          return 0;
        },
        {.parent_death_signal = SIGKILL});
  }
  /// Its exit status; -1 if it does not end.
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

  // Created per test, so that it does not affect the count of descriptors.
  CounterPage page_ = create_counter_page();
  std::string base_;
  std::uint16_t port_ = 0;
  base::UniqueFd stop_;
  std::optional<os::Child> child_;
};

TEST_F(MetricsServer, ShowsWhatAnotherProcessCounts) {
  start();
  const http::Response first = get("/metrics");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.content_type, metrics::kPrometheusTextType);
  EXPECT_THAT(first.body,
              HasSubstr("\ngms_commits_total{device=\"0\",uuid=\"GPU-1\",tag=\"weights\"} 0\n"));
  page_->commits.add(2);
  EXPECT_THAT(get("/metrics?x=1").body,
              HasSubstr("\ngms_commits_total{device=\"0\",uuid=\"GPU-1\",tag=\"weights\"} 2\n"));
  EXPECT_EQ(stop(), 0);
}

TEST_F(MetricsServer, IsReadyWhileAllServersAre) {
  start();
  EXPECT_EQ(get("/live").status, 200);
  EXPECT_EQ(get("/ready").status, 503);
  page_->up.set(1);
  EXPECT_EQ(get("/ready").status, 503) << "its snapshot may be missing";
  page_->ready.set(1);
  EXPECT_EQ(get("/ready").status, 200);
  page_->reset_gauges();
  EXPECT_EQ(get("/ready").status, 503);
  EXPECT_EQ(get("/live").status, 200);
  EXPECT_EQ(stop(), 0);
}

TEST_F(MetricsServer, EndsAtOnceWithIdleClients) {
  start();
  http::test::RawClient idle(port_);
  EXPECT_EQ(get("/metrics").status, 200);
  EXPECT_EQ(stop(), 0);
  EXPECT_EQ(idle.read_to_end(), "");
}

TEST_F(MetricsServer, StopThatIsThereBeforeTheStartCounts) {
  start();
  EXPECT_EQ(stop(), 0);
}

}  // namespace
}  // namespace fo::gms
