// What counts as a demand: requests that a worker gets, and of those that are refused one for each
// client.
#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "http/client.h"
#include "http/server.h"
#include "loop/test_loop.h"
#include "route/attempts.h"
#include "route/router_parts.h"
#include "support/fds.h"
#include "support/soon.h"

namespace fo::test {
namespace {

using boost::asio::awaitable;

/// The requests of one client, of the tier best effort, in a router with one worker.
class RouterDemand : public FdCounting {
 protected:
  void start(route::RouterOptions options = {}) {
    parts_ = std::make_shared<route::RouterParts>(executor(), std::move(options));
    worker_->model = "m";
    worker_->slots = 1;
    worker_->is_reachable = true;
    parts_->workers.add(worker_);
    parts_->dispatcher.on_change();
  }
  /// The code of the answer to one request.
  std::string ask() {
    http::FetchOptions body;
    body.body = R"({"model":"m","prompt":"a"})";
    const std::string url = "http://127.0.0.1:" + std::to_string(port_) + "/v1/completions";
    const http::Response response = loop_.run(http::async_fetch("POST", url, soon(), body));
    return nlohmann::json::parse(response.body).at("error").value("code", "");
  }
  [[nodiscard]] double rate() const { return parts_->demand.rate(route::time_now()); }

  boost::asio::any_io_executor executor() { return loop_.io().get_executor(); }
  TestLoop loop_;
  const route::WorkerPtr worker_ = std::make_shared<route::Worker>("w", fleet::Health{});
  /// Of the requests, too, which end with the loop.
  std::shared_ptr<route::RouterParts> parts_;

 private:
  awaitable<void> handle(const http::Request& from, http::Reply& reply) {
    const std::shared_ptr<route::RouterParts> parts = parts_;
    route::ReadRequest read = route::read_request(from, route::Api::kCompletions, {});
    route::Job job("job", *std::move(read.request), {});
    job.model = "m";
    job.key = "key";
    job.tier = plan::kBestEffort;
    co_await route::answer(*parts, job, reply);
  }

  http::Server server_{executor(), [this](const http::Request& from, http::Reply& reply) {
                         return handle(from, reply);
                       }};
  const std::uint16_t port_ = server_.listen("127.0.0.1:0");
};

TEST_F(RouterDemand, IsNotWhatIsRefusedAtOnce) {
  start();
  parts_->dispatcher.set_level(plan::setting_of(2, 0.6));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(), "capacity_shed");
  EXPECT_EQ(rate(), 0);
  // Without anything that was admitted, the client's refusal does not count either.
  parts_->demand.on_admitted(route::time_now());
  EXPECT_GT(rate(), 0);
  EXPECT_LE(rate(), 0.2);
}

TEST_F(RouterDemand, IsNotWhatWaitsInVain) {
  route::RouterOptions options;
  options.dispatch.queue.timeout = std::chrono::milliseconds(1);
  start(std::move(options));
  worker_->is_reachable = false;
  parts_->dispatcher.on_change();
  EXPECT_EQ(ask(), "overloaded");
  EXPECT_EQ(rate(), 0);
}

// A worker had it, so that it was a demand, and once only.
TEST_F(RouterDemand, IsWhatAWorkerFailed) {
  start();
  worker_->set_url("http://127.0.0.1:1", net::parse_url("http://127.0.0.1:1"), std::nullopt);
  parts_->options.on_refused = [this](const route::WorkerPtr& worker, const std::string&) {
    parts_->workers.remove(worker->id);
    parts_->dispatcher.on_change();
  };
  EXPECT_EQ(ask(), "no_worker");
  EXPECT_GT(rate(), 0);
  EXPECT_LE(rate(), 0.1);
}

}  // namespace
}  // namespace fo::test
