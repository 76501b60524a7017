#include "route/listing.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "http/message.h"
#include "support/failure.h"

namespace fo::test {
namespace {

using nlohmann::json;
using route::Job;
using route::Worker;

route::Workers two_workers() {
  route::Workers workers;
  for (const char* id : {"a", "b"}) {
    const auto worker = std::make_shared<Worker>(id, fleet::Health{});
    worker->name = id;
    worker->url = "http://127.0.0.1:1";
    worker->model = "llama";
    worker->slots = 4;
    workers.add(worker);
  }
  workers.find("a")->is_reachable = true;
  workers.find("a")->requests = 2;
  workers.find("b")->is_drained = true;
  workers.find("b")->is_stale = true;
  return workers;
}

TEST(Listing, TheStateHasTheWorkersAndTheirSum) {
  const json state = json::parse(route::state_json(two_workers(), 3));
  EXPECT_EQ(state["version"], 1);
  EXPECT_EQ(state["level"], 3);
  EXPECT_EQ(state["total"], 2);
  EXPECT_EQ(state["healthy"], 1);
  const json a = state["workers"][0];
  EXPECT_EQ(a["id"], "a");
  EXPECT_EQ(a["life"], "ready");
  EXPECT_EQ(a["reachable"], true);
  EXPECT_EQ(a["health"], "healthy");
  EXPECT_EQ(a["requests"], 2);
  EXPECT_EQ(a["slots"], 4);
  const json b = state["workers"][1];
  EXPECT_EQ(b["life"], "draining");
  EXPECT_EQ(b["stale"], true);
}

TEST(Listing, AnUnreachableOrSuspiciousWorkerIsNotHealthy) {
  route::Workers workers = two_workers();
  workers.find("a")->health.apply(fleet::HealthEvent::kFault, base::Duration(0), 0);
  EXPECT_EQ(json::parse(route::state_json(workers, 0))["healthy"], 0);
}

TEST(Listing, AVerdictIsShownBesideTheHealth) {
  route::Workers workers = two_workers();
  const auto a = [&] { return json::parse(route::state_json(workers, 0))["workers"][0]; };
  EXPECT_EQ(a()["verdict"], "unknown");
  workers.find("a")->verdict = {
      .health = fleet::HealthState::kConvicted, .weight = 0, .reason = "wrong tokens"};
  EXPECT_EQ(a()["health"], "healthy");
  EXPECT_EQ(a()["verdict"], "convicted");
  EXPECT_EQ(a()["verdict_reason"], "wrong tokens");
  const std::string state = route::state_json(workers, 0);
  EXPECT_EQ(json::parse(state)["healthy"], 0);
  EXPECT_NE(route::to_table("state", state).find("convicted"), std::string::npos);
}

class ListedRequests : public testing::Test {
 protected:
  ListedRequests() {
    for (const char* id : {"later", "earlier"}) {
      route::ClientRequest request;
      request.body = "a prompt";
      request.prompt_tokens = 7;
      jobs_.push_back(std::make_unique<Job>(id, request, route::Exchange::Limits{}));
      jobs_.back()->model = "llama";
      jobs_.back()->received = now_ - std::chrono::milliseconds(jobs_.size() * 1500);
      by_id_[id] = jobs_.back().get();
    }
    jobs_[1]->worker = std::make_shared<Worker>("a", fleet::Health{});
    jobs_[1]->worker->name = "first";
  }

  const route::TimePoint now_{std::chrono::hours(1)};
  std::vector<std::unique_ptr<Job>> jobs_;
  std::map<std::string, Job*> by_id_;
};

TEST_F(ListedRequests, AreSortedByAgeAndHaveNoText) {
  const std::string text = route::requests_json(by_id_, now_);
  EXPECT_EQ(text.find("prompt\""), std::string::npos);
  EXPECT_EQ(text.find("a prompt"), std::string::npos);
  const json list = json::parse(text)["requests"];
  EXPECT_EQ(list[0]["id"], "earlier");
  EXPECT_EQ(list[0]["age_s"], 3.0);
  EXPECT_EQ(list[0]["worker"], "first");
  EXPECT_EQ(list[0]["tier"], "premium");
  EXPECT_EQ(list[0]["body_bytes"], 8);
  EXPECT_EQ(list[0]["prompt_tokens"], 7);
  EXPECT_EQ(list[1]["id"], "later");
  EXPECT_TRUE(list[1]["worker"].is_null());
}

TEST_F(ListedRequests, AreATable) {
  const std::string table = route::to_table("requests", route::requests_json(by_id_, now_));
  EXPECT_TRUE(table.starts_with("id ")) << table;
  EXPECT_NE(table.find("prompt tokens"), std::string::npos);
  EXPECT_NE(table.find("\nearlier "), std::string::npos);
  EXPECT_NE(table.find("\nlater "), std::string::npos);
}

TEST(Listing, TheStateIsATable) {
  const std::string table = route::to_table("state", route::state_json(two_workers(), 0));
  EXPECT_TRUE(table.starts_with("name ")) << table;
  EXPECT_NE(table.find(" yes "), std::string::npos);
  EXPECT_NE(table.find(" draining "), std::string::npos);
}

TEST(Listing, AnAnswerThatIsNoListingIsRefused) {
  for (const char* answer : {"", "[]", "{}", R"({"workers":1})"}) {
    EXPECT_EQ(status_of([&] { static_cast<void>(route::to_table("state", answer)); }),
              base::ExitStatus::kProtocol)
        << answer;
  }
}

}  // namespace
}  // namespace fo::test
