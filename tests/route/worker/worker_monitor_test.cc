#include "route/worker/worker_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loop/test_loop.h"
#include "net/address.h"
#include "oracle/engine.h"
#include "route/scripted_worker.h"
#include "support/fds.h"
#include "support/ports.h"
#include "support/stderr_text.h"

namespace fo::test {
namespace {

using route::read_models;
using route::WorkerMonitor;
using route::WorkerPtr;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(ReadModels, TheModelIsBeforeItsAdapters) {
  EXPECT_THAT(read_models(R"({"data":[{"id":"llama"}]})").names, ElementsAre("llama"));
  EXPECT_THAT(read_models(R"({"data":[{"id":"adapter","parent":"llama"},
                                      {"id":"llama","parent":null}]})")
                  .names,
              ElementsAre("llama", "adapter"));
  // Its other names follow the first one.
  EXPECT_THAT(read_models(R"({"data":[{"id":"llama"},{"id":"alias"}]})").names,
              ElementsAre("llama", "alias"));
}

TEST(ReadModels, TheContextIsThatOfTheFirst) {
  EXPECT_EQ(read_models(R"({"data":[{"id":"a","max_model_len":7},{"id":"b","max_model_len":8}]})")
                .context_length,
            7U);
  for (const char* answer : {R"({"data":[{"id":"a"}]})", R"({"data":[]})", "",
                             R"({"data":[{"id":"a","max_model_len":-1}]})"}) {
    EXPECT_EQ(read_models(answer).context_length, 0U) << answer;
  }
}

TEST(ReadModels, NothingInOtherAnswers) {
  for (const char* answer : {"", "[]", "{}", R"({"data":{}})", R"({"data":[1,{},{"id":2}]})"}) {
    EXPECT_THAT(read_models(answer).names, IsEmpty()) << answer;
  }
}

class WorkerMonitorTest : public FdCounting {
 protected:
  static WorkerMonitor::Options options() {
    WorkerMonitor::Options options;
    options.retry = std::chrono::milliseconds(5);
    options.check = std::chrono::milliseconds(20);
    options.timeout = options.load_timeout = std::chrono::seconds(10);
    options.load = std::chrono::milliseconds(5);
    options.takeover = std::chrono::milliseconds(0);
    options.headers = {{"authorization", "Bearer engine-key"}};
    return options;
  }
  WorkerMonitorTest()
      : monitor_(
            loop_.io().get_executor(), options(), [this](const WorkerPtr&) { ++changes_; },
            [this](const WorkerPtr&) { ++ended_; }) {}

  /// Before the first watch().
  void change_options(const std::function<void(WorkerMonitor::Options&)>& change) {
    WorkerMonitor::Options changed = options();
    change(changed);
    monitor_.set_options(changed);
  }
  void start_engine(const std::string& model = "oracle") {
    oracle::EngineOptions options;
    options.model.name = model;
    engine_ = std::make_unique<oracle::Engine>(loop_.io().get_executor(), options);
    engine_->listen("127.0.0.1:" + std::to_string(port_.number()));
  }
  WorkerPtr watch_url(const std::string& url, const std::string& model = "") {
    const auto worker = std::make_shared<route::Worker>("w", fleet::Health{});
    worker->set_url(url, net::parse_url(url), std::nullopt);
    worker->model = model;
    worker->slots = 64;
    monitor_.watch(worker);
    return worker;
  }
  WorkerPtr watch(const std::string& model = "") { return watch_url(port_.url(), model); }
  void until_reachable(const WorkerPtr& worker, bool is_reachable) {
    loop_.run_until([&] { return worker->is_reachable == is_reachable; });
  }

  static boost::asio::awaitable<void> read_head(http::test::Peer& peer,
                                                std::vector<std::string>& heads) {
    std::string head = co_await peer.read_head();
    heads.push_back(std::move(head));
  }
  static boost::asio::awaitable<void> answer_checks(http::test::Peer& peer) {
    co_await ScriptedWorker::answer_checks(peer);
  }
  // Answers one query of a check, by each form of an answer that ends the connection.
  static boost::asio::awaitable<void> answer_once(http::test::Peer& peer, int number) {
    const std::string head = co_await peer.read_head();
    const bool is_health = head.starts_with("GET /health ");
    const std::string body = is_health ? "" : R"({"data":[{"id":"oracle"}]})";
    const std::string begin =
        number % 4 < 2 ? "HTTP/1.0 200 OK\r\n" : "HTTP/1.1 200 OK\r\nConnection: close\r\n";
    co_await peer.write(begin + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                        body);
  }
  // Answers one query, and counts those for metrics, which get `metrics`, or no answer without it.
  static boost::asio::awaitable<void> count_metrics(http::test::Peer& peer, int& count,
                                                    std::string metrics) {
    const std::string head = co_await peer.read_head();
    std::string answer = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    if (head.starts_with("GET /v1/models ")) answer += R"({"data":[{"id":"oracle"}]})";
    if (head.starts_with("GET /metrics ")) {
      ++count;
      answer = metrics;
    }
    co_await peer.write(answer);
    if (answer.empty()) co_await peer.read_to_end();
  }
  static boost::asio::awaitable<void> read_only(http::test::Peer& peer) {
    co_await peer.read_to_end();
  }

  TestLoop loop_;
  ReservedPort port_;
  std::unique_ptr<oracle::Engine> engine_;
  WorkerMonitor monitor_;
  int changes_ = 0;
  int ended_ = 0;
};

TEST_F(WorkerMonitorTest, AWorkerIsReachableOnceItsHealthAndModelsAre) {
  const WorkerPtr worker = watch();
  loop_.run_until([&] { return worker->unreachable_since.has_value(); });
  EXPECT_FALSE(worker->is_reachable);
  start_engine();
  until_reachable(worker, true);
  EXPECT_EQ(worker->model, "oracle");
  EXPECT_TRUE(worker->is_known);
  EXPECT_FALSE(worker->unreachable_since.has_value());
  EXPECT_EQ(changes_, 2) << "the first failure is a change, too";
}

TEST_F(WorkerMonitorTest, AWorkerThatEndsIsOutAndComesBack) {
  start_engine();
  const WorkerPtr worker = watch();
  until_reachable(worker, true);
  engine_.reset();
  until_reachable(worker, false);
  EXPECT_TRUE(worker->unreachable_since.has_value());
  worker->refused[{"oracle", route::Api::kChat}] = {};
  start_engine();
  until_reachable(worker, true);
  EXPECT_TRUE(worker->refused.empty()) << "it may have another configuration now";
  EXPECT_EQ(changes_, 3);
  EXPECT_EQ(ended_, 0);
}

TEST_F(WorkerMonitorTest, TheLogNamesTheWorkerOnce) {
  const StderrText logged;
  const WorkerPtr worker = watch();
  worker->name = "first";
  loop_.run_until([&] { return worker->unreachable_since.has_value(); });
  EXPECT_EQ(logged.text(),
            "fo: warning: worker 'first': out of rotation: health check: Connection refused\n");
}

TEST_F(WorkerMonitorTest, ARefusedConnectionOfARequestIsEnough) {
  start_engine();
  const WorkerPtr worker = watch();
  until_reachable(worker, true);
  monitor_.on_refused(worker, "it refuses connections");
  EXPECT_FALSE(worker->is_reachable);
  EXPECT_EQ(changes_, 2);
  until_reachable(worker, true);
}

TEST_F(WorkerMonitorTest, AnUnhealthyWorkerIsOut) {
  start_engine();
  const WorkerPtr worker = watch();
  until_reachable(worker, true);
  engine_->knobs().health = "no";
  until_reachable(worker, false);
}

TEST_F(WorkerMonitorTest, AnotherEngineAtItsAddressIsNotTheWorker) {
  start_engine("another");
  const WorkerPtr worker = watch("oracle");
  loop_.run_until([&] { return worker->unreachable_since.has_value(); });
  EXPECT_FALSE(worker->is_reachable);
  start_engine("oracle");
  until_reachable(worker, true);
}

TEST_F(WorkerMonitorTest, WithoutARecordAWorkerHasTheModelOfTheEngineAtItsAddress) {
  start_engine("oracle");
  const WorkerPtr worker = watch();
  worker->reports_model = true;
  until_reachable(worker, true);
  EXPECT_EQ(worker->model, "oracle");
  start_engine("another");
  loop_.run_until([&] { return worker->is_reachable && worker->model == "another"; });
  EXPECT_EQ(worker->incarnation, 2U) << "it is another engine";
}

TEST_F(WorkerMonitorTest, AStaleWorkerThatRefusesConnectionsHasEnded) {
  start_engine();
  const WorkerPtr worker = watch();
  until_reachable(worker, true);
  worker->is_stale = true;
  engine_.reset();
  loop_.run_until([this] { return ended_ == 1; });
  // Nobody watches it any more.
  start_engine();
  const WorkerPtr other = watch();
  until_reachable(other, true);
  EXPECT_FALSE(worker->is_reachable);
}

TEST_F(WorkerMonitorTest, AStaleWorkerThatWasNeverReachedMayStillBeStarting) {
  const WorkerPtr worker = watch();
  worker->is_stale = true;
  loop_.run_until([&] { return worker->may_have_ended; });
  start_engine();
  until_reachable(worker, true);
  EXPECT_FALSE(worker->may_have_ended);
  EXPECT_EQ(ended_, 0);
}

TEST_F(WorkerMonitorTest, AStaleWorkerThatIsUnhealthyMayRecover) {
  start_engine();
  const WorkerPtr worker = watch();
  until_reachable(worker, true);
  worker->is_stale = true;
  engine_->knobs().health = "no";
  until_reachable(worker, false);
  engine_->knobs().health = "yes";
  until_reachable(worker, true);
  EXPECT_EQ(ended_, 0);
}

TEST_F(WorkerMonitorTest, AStaleWorkerWithAnotherEngineAtItsAddressHasEnded) {
  start_engine("oracle");
  const WorkerPtr worker = watch();
  until_reachable(worker, true);
  worker->is_stale = true;
  worker->model = "another";
  loop_.run_until([this] { return ended_ == 1; });
}

TEST_F(WorkerMonitorTest, AnEngineMayCloseEachConnection) {
  http::test::ScriptedServer server(
      loop_.io().get_executor(),
      [](http::test::Peer& peer, int number) { return answer_once(peer, number); });
  const WorkerPtr worker =
      watch_url("http://127.0.0.1:" + std::to_string(server.origin().address.port));
  until_reachable(worker, true);
  EXPECT_EQ(worker->model, "oracle");
  // The second check has the other form of each answer.
  loop_.run_until([&] { return server.ended() >= 6; });
  EXPECT_TRUE(worker->is_reachable);
  EXPECT_EQ(changes_, 1);
}

TEST_F(WorkerMonitorTest, ARemovedWorkerIsNotAsked) {
  start_engine();
  const WorkerPtr worker = watch();
  until_reachable(worker, true);
  worker->is_removed = true;
  monitor_.on_removed(worker);
  loop_.run_until([&] { return worker.use_count() == 1; });
}

TEST_F(WorkerMonitorTest, ChecksHaveTheKeyOfTheEngines) {
  std::vector<std::string> requests;
  http::test::ScriptedServer server(
      loop_.io().get_executor(),
      [&requests](http::test::Peer& peer, int) { return read_head(peer, requests); });
  watch_url("http://127.0.0.1:" + std::to_string(server.origin().address.port) + "/");
  loop_.run_until([&] { return !requests.empty() && !requests[0].empty(); });
  EXPECT_TRUE(requests[0].starts_with("GET /health HTTP/1.1\r\n")) << requests[0];
  EXPECT_NE(requests[0].find("authorization: Bearer engine-key\r\n"), std::string::npos);
}

TEST_F(WorkerMonitorTest, OnlyAWorkerWithRequestsIsAskedForItsQueue) {
  int asked = 0;
  http::test::ScriptedServer server(loop_.io().get_executor(), [&](http::test::Peer& peer, int) {
    return count_metrics(peer, asked, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
  });
  const WorkerPtr worker =
      watch_url("http://127.0.0.1:" + std::to_string(server.origin().address.port));
  until_reachable(worker, true);
  const auto await_checks = [&](int count) {
    loop_.run_until([&, until = server.ended() + count] { return server.ended() >= until; });
  };
  await_checks(6);
  EXPECT_EQ(asked, 0);
  worker->requests = 1;
  loop_.run_until([&] { return asked > 0; });
  await_checks(6);
  EXPECT_EQ(asked, 1) << "an engine without metrics is asked again after a minute";
}

TEST_F(WorkerMonitorTest, MetricsThatAreLateDelayNothingAndAreAskedForOnce) {
  int asked = 0;
  http::test::ScriptedServer server(loop_.io().get_executor(), [&](http::test::Peer& peer, int) {
    return count_metrics(peer, asked, "");
  });
  const WorkerPtr worker =
      watch_url("http://127.0.0.1:" + std::to_string(server.origin().address.port));
  until_reachable(worker, true);
  worker->requests = 1;
  loop_.run_until([&] { return asked > 0; });
  loop_.run_until([&, until = server.ended() + 6] { return server.ended() >= until; });
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(worker->is_reachable);
  EXPECT_EQ(worker->slots_now(1), 64U);
}

TEST_F(WorkerMonitorTest, AStandbyMayTakeOverTheAddressOfAStaleWorker) {
  change_options([](auto& options) { options.takeover = std::chrono::hours(1); });
  start_engine();
  const WorkerPtr worker = watch();
  until_reachable(worker, true);
  worker->is_stale = true;
  engine_.reset();
  until_reachable(worker, false);
  EXPECT_FALSE(worker->may_have_ended) << "its set keeps its weight";
  start_engine();
  until_reachable(worker, true);
  EXPECT_EQ(ended_, 0);
}

TEST_F(WorkerMonitorTest, AFaultDuringACheckLeadsToAnother) {
  change_options([](auto& options) { options.check = std::chrono::hours(1); });
  int checks = 0;
  WorkerPtr worker;
  http::test::ScriptedServer server(
      loop_.io().get_executor(), [&](http::test::Peer& peer, int) -> boost::asio::awaitable<void> {
        if (++checks == 1) monitor_.on_fault(worker);
        return answer_checks(peer);
      });
  worker = watch_url("http://127.0.0.1:" + std::to_string(server.origin().address.port));
  loop_.run_until([&] { return checks > 1; });
  EXPECT_TRUE(worker->is_reachable);
  server.stop();
}

TEST_F(WorkerMonitorTest, AStaleWorkerIsUsedForALimitedTime) {
  change_options([](auto& options) { options.stale = std::chrono::milliseconds(1); });
  const StderrText logged;
  start_engine();
  const WorkerPtr worker = watch();
  until_reachable(worker, true);
  EXPECT_EQ(ended_, 0);
  worker->is_stale = true;
  loop_.run_until([this] { return ended_ == 1; });
  EXPECT_TRUE(logged.contains("worker '': not used any more, because it was stale for 1ms\n"))
      << logged.text();
}

TEST_F(WorkerMonitorTest, ALateAnswerChangesNothing) {
  change_options([](auto& options) { options.timeout = std::chrono::milliseconds(200); });
  WorkerPtr worker;
  // Answers until it has become reachable, and then no more.
  http::test::ScriptedServer server(loop_.io().get_executor(), [&](http::test::Peer& peer, int) {
    return worker->is_reachable ? read_only(peer) : answer_checks(peer);
  });
  worker = watch_url("http://127.0.0.1:" + std::to_string(server.origin().address.port));
  until_reachable(worker, true);
  const int answered = server.connections();
  loop_.run_until([&] { return server.ended() >= answered + 3; });
  EXPECT_TRUE(worker->is_reachable);
  EXPECT_EQ(changes_, 1);
}

TEST_F(WorkerMonitorTest, AWorkerWhoseFirstAnswerIsLateHasChanged) {
  change_options([](auto& options) { options.timeout = std::chrono::milliseconds(200); });
  http::test::ScriptedServer server(loop_.io().get_executor(),
                                    [](http::test::Peer& peer, int) { return read_only(peer); });
  const WorkerPtr worker =
      watch_url("http://127.0.0.1:" + std::to_string(server.origin().address.port));
  loop_.run_until([&] { return worker->unreachable_since.has_value(); });
  EXPECT_EQ(changes_, 1);
}

}  // namespace
}  // namespace fo::test
