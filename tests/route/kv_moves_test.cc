// Requests that leave a drained worker with their KV cache: two engines with a real model, and a
// router before them.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "http/client.h"
#include "http/support.h"
#include "net/address.h"
#include "refengine/local_model.h"
#include "route/fleet.h"

namespace fo::test {
namespace {

using boost::asio::awaitable;
using nlohmann::json;
using refengine::LocalEngine;

const std::string kPull = "/kv_snapshot/pull";
const std::string kCompletions = "/v1/completions";

// Stands before an engine, whose answers it may change. It has each answer complete before it
// passes it on.
class Changed {
 public:
  using Change = std::function<void(const http::Request&, http::Response&)>;
  Changed(std::string engine, Change change)
      : server_([engine = std::move(engine), change = std::move(change)](
                    const http::Request& request, http::Reply& reply) {
          return pass_on(engine, change, request, reply);
        }) {}
  [[nodiscard]] std::string url() const { return server_.url(""); }

 private:
  static awaitable<void> pass_on(std::string engine, const Change& change,
                                 const http::Request& request, http::Reply& reply) {
    http::FetchOptions options;
    options.body = request.body;
    if (const auto id = request.header("x-request-id")) {
      options.headers.emplace_back("x-request-id", *id);
    }
    http::Response response = co_await http::async_fetch(request.method, engine + request.target,
                                                         soon(), std::move(options));
    http::Fields kept;
    if (const auto used = response.header("x-fo-kv-snapshot")) {
      kept.emplace_back("x-fo-kv-snapshot", *used);
    }
    response.content_type = std::string(response.header("content-type").value_or(""));
    response.headers = std::move(kept);
    change(request, response);
    reply.answer(std::move(response));
  }

  http::test::TestServer server_;
};

void set_status(http::Response& response, int status) {
  response.status = status;
  response.body = "{}";
}

class KvMoves : public ::testing::Test {
 protected:
  static route::RouterOptions move_at_once(std::uint64_t prefill) {
    route::RouterOptions options = in_turns();
    options.resume.drain = base::Duration::zero();
    options.resume.moves = {.bandwidth = base::kGiB, .prefill = prefill};
    return options;
  }

  // A stream begins on the source, which is drained; then it ends on the target. Expects that it is
  // whole. With `third_url`, there is another worker.
  void move(const std::string& target_url, std::uint64_t prefill = 100,
            const std::string& third_url = {}) {
    Fleet fleet(move_at_once(prefill));
    json body{{"model", "model"}, {"prompt", "Hello"},  {"max_tokens", 100},
              {"stream", true},   {"ignore_eos", true}, {"temperature", 0}};
    const Client whole =
        fleet.ask(body, kCompletions, {}, net::parse_url(target_->url()).address.port);
    source_->hold_after(40);
    fleet.add_worker(source_->url());
    const Client call = fleet.begin(body, kCompletions);
    fleet.run_until([&] { return source_->is_held() && !call->text().empty(); });
    fleet.add_worker(target_url);
    if (!third_url.empty()) fleet.add_worker(third_url);
    fleet.worker(0).is_drained = true;
    fleet.router().on_change();
    fleet.run_until([&] { return call->has_ended(); });
    EXPECT_EQ(call->text(), whole->text());
    EXPECT_EQ(call->events().back(), "[DONE]");
    EXPECT_TRUE(call->is_whole());
    EXPECT_NE(call->body().find(": fo-route: resumed 1\n"), std::string::npos);
    EXPECT_EQ(call->header("x-fo-kv-snapshot"), "-");
    metrics_ = fleet.router().metrics_text();
  }
  void move() { move(target_->url()); }

  void expect_method(const std::string& method) const {
    for (const std::string name : {"transfer", "reprefill"}) {
      const std::string labels = "{method=\"" + name + "\"";
      const std::string count = name == method ? " 1\n" : " 0\n";
      EXPECT_NE(metrics_.find("dynamo_migration_total" + labels + "}" + count), std::string::npos)
          << metrics_;
      EXPECT_NE(metrics_.find("dynamo_migration_duration_seconds_count" + labels + "}" + count),
                std::string::npos);
    }
  }

  // A move whose target answers otherwise than the engine has each token computed again.
  void expect_replay(const Changed::Change& change) {
    const Changed changed(target_->url(), change);
    move(changed.url());
    expect_method("reprefill");
  }

  std::unique_ptr<LocalEngine> source_ = std::make_unique<LocalEngine>();
  std::unique_ptr<LocalEngine> target_ = std::make_unique<LocalEngine>();
  std::string metrics_;
};

TEST_F(KvMoves, TheKvCacheIsTransferred) {
  move();
  expect_method("transfer");
}

TEST_F(KvMoves, AFastWorkerComputesTheTokens) {
  move(target_->url(), 1'000'000);
  expect_method("reprefill");
}

TEST_F(KvMoves, ATargetThatCannotPullComputesTheTokens) {
  for (const int status : {400, 403, 404, 409, 500, 502, 503}) {
    source_ = std::make_unique<LocalEngine>();
    expect_replay([status](const http::Request& request, http::Response& response) {
      if (request.path == kPull) set_status(response, status);
    });
  }
}

TEST_F(KvMoves, ATargetWithoutRoomForTheKvCacheComputesTheTokens) {
  target_ = std::make_unique<LocalEngine>(LocalEngine::Options{.kv_snapshot_bytes = 1});
  move();
  expect_method("reprefill");
}

TEST_F(KvMoves, ASourceThatDiesDuringThePullIsResumed) {
  expect_replay([this](const http::Request& request, http::Response& response) {
    if (request.path != kPull) return;
    source_.reset();
    set_status(response, 502);
  });
}

TEST_F(KvMoves, ASnapshotThatIsGoneIsComputed) {
  expect_replay([](const http::Request& request, http::Response& response) {
    if (request.path != kPull) return;
    json answer = json::parse(response.body);
    answer["snapshot"] = "lost";
    response.body = answer.dump();
  });
}

TEST_F(KvMoves, AnInvalidAnswerToAPullIsNoSnapshot) {
  for (const std::string body : {"", "[]", "{\"snapshot\":7}"}) {
    source_ = std::make_unique<LocalEngine>();
    expect_replay([&](const http::Request& request, http::Response& response) {
      if (request.path == kPull) response.body = body;
    });
  }
}

TEST_F(KvMoves, ASnapshotOfTokensThatNeverArriveIsNotUsed) {
  expect_replay([](const http::Request& request, http::Response& response) {
    if (request.path != kPull) return;
    json answer = json::parse(response.body);
    answer["tokens"] = 100'000;
    response.body = answer.dump();
  });
}

// That is no refusal of the snapshot.
TEST_F(KvMoves, AnOverloadedWorkerIsNotAskedWithoutTheSnapshot) {
  for (const int status : {429, 503, 529}) {
    source_ = std::make_unique<LocalEngine>();
    const LocalEngine third;
    int asked = 0;
    const Changed changed(target_->url(),
                          [&](const http::Request& request, http::Response& response) {
                            if (request.path != kCompletions) return;
                            ++asked;
                            set_status(response, status);
                          });
    move(changed.url(), 100, third.url());
    expect_method("reprefill");
    EXPECT_EQ(asked, 1) << status;
  }
}

TEST_F(KvMoves, AWorkerThatRefusesTheSnapshotIsAskedWithoutIt) {
  expect_replay([](const http::Request& request, http::Response& response) {
    if (request.body.find("fo_snapshot") != std::string::npos) set_status(response, 400);
  });
}

}  // namespace
}  // namespace fo::test
