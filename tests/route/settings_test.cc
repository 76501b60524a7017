#include "route/settings.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "loop/test_loop.h"
#include "support/failure.h"

namespace fo::test {
namespace {

using route::OperatorSettings;

TEST(Settings, AreReadAsTheyWereWritten) {
  OperatorSettings settings;
  EXPECT_EQ(route::read_settings(to_json(settings)), settings);
  settings.drained = {"a", "http://127.0.0.1:1"};
  settings.weights = {{"llama", {{"", 2}, {"sha256:1", 0.5}}}};
  settings.level = 4;
  settings.responses = {{"resp_1", "a"}, {"resp_2", "b"}};
  settings.poison = {{"00", std::chrono::milliseconds(5)}};
  EXPECT_EQ(route::read_settings(to_json(settings)), settings);
}

TEST(Settings, OtherTextsAreRefused) {
  const std::string text = to_json(OperatorSettings{.drained = {"a"}, .weights = {}, .level = 1});
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_EQ(status_of([&] { route::read_settings(text.substr(0, length)); }),
              base::ExitStatus::kProtocol);
  }
  const auto reason = [](const std::string& members) {
    return failure_of([&] { route::read_settings(R"({"version":1,)" + members + "}"); });
  };
  for (const char* members :
       {R"("weights":{})", R"("drained":"a","weights":{})", R"("drained":[1],"weights":{})",
        R"("drained":[],"weights":[])", R"("drained":[],"weights":{"m":1})",
        R"("drained":[],"weights":{"m":{"":"1"}})", R"("drained":[],"weights":{"m":{"":-1}})",
        R"("drained":[],"weights":{},"level":5)", R"("drained":[],"weights":{},"level":-1)",
        R"("drained":[],"weights":{},"level":"auto")",
        R"("drained":[],"weights":{},"responses":[["resp_1"]])",
        R"("drained":[],"weights":{},"responses":{"resp_1":1}})",
        R"("drained":[],"weights":{},"poison":["00"]})",
        R"("drained":[],"weights":{},"poison":{"00":"1"}})"}) {
    EXPECT_EQ(reason(members).status, base::ExitStatus::kProtocol) << members;
  }
  EXPECT_EQ(reason(R"("drained":[],"weights":{},"level":9)").message,
            "the settings of the router: the level is unknown");
}

class OperatorControlTest : public testing::Test {
 protected:
  route::WorkerPtr add(const std::string& id, const std::string& model) {
    const auto worker = std::make_shared<route::Worker>(id, fleet::Health{});
    worker->model = model;
    control_.on_new(worker);
    router_.workers().add(worker);
    return worker;
  }
  [[nodiscard]] static std::string level(const route::Router& router) {
    return nlohmann::json::parse(router.state())["level"].dump();
  }

  TestLoop loop_;
  route::Router router_{loop_.io().get_executor(), {}};
  route::OperatorControl control_{router_};
};

TEST_F(OperatorControlTest, WhatIsSetIsInForceAndKept) {
  const route::WorkerPtr a = add("a", "llama");
  EXPECT_TRUE(control_.set_drained("a", true));
  EXPECT_TRUE(a->is_drained);
  control_.set_weights("llama", {{"", 3}});
  control_.set_level(2);
  EXPECT_EQ(level(router_), "2");
  EXPECT_FALSE(control_.set_drained("b", true));
  EXPECT_THROW(control_.set_level(9), base::Error);
  EXPECT_EQ(control_.settings(),
            (OperatorSettings{.drained = {"a"}, .weights = {{"llama", {{"", 3}}}}, .level = 2}));
  // A record of the registry replaces the weights.
  router_.workers().set_weights("llama", route::CardWeights{{"", 1}});
  EXPECT_TRUE(control_.settings().weights.empty());
  control_.set_level(std::nullopt);
  EXPECT_TRUE(control_.set_drained("a", false));
  EXPECT_EQ(control_.settings(), OperatorSettings{});
  EXPECT_TRUE(control_.set_drained("a", true));
  control_.on_removed(a);
  EXPECT_EQ(control_.settings(), OperatorSettings{});
}

TEST_F(OperatorControlTest, AnotherRouterKnowsTheWorkersOfResponsesAndThePoison) {
  router_.response_ids().add("resp_1", "a");
  router_.response_ids().add("resp_2", "b");
  router_.poison().add("key", "body", route::time_now());
  const OperatorSettings settings = control_.settings();
  ASSERT_EQ(settings.responses.size(), 2U);
  EXPECT_EQ(settings.poison.size(), 1U);
  route::Router next(loop_.io().get_executor(), {});
  route::OperatorControl control(next);
  control.set_all(route::read_settings(route::to_json(settings)));
  EXPECT_EQ(next.response_ids().worker_of("resp_1"), "a");
  EXPECT_EQ(next.response_ids().worker_of("resp_2"), "b");
  EXPECT_TRUE(next.poison().contains("key", "body", route::time_now()));
  EXPECT_EQ(control.settings().responses, settings.responses);
}

TEST_F(OperatorControlTest, AnotherRouterContinuesWithIt) {
  const route::WorkerPtr a = add("a", "llama");
  control_.set_all({.drained = {"a", "later"}, .weights = {{"llama", {{"", 2}}}}, .level = 1});
  EXPECT_TRUE(a->is_drained);
  EXPECT_TRUE(add("later", "llama")->is_drained);
  EXPECT_FALSE(add("b", "llama")->is_drained);
  EXPECT_EQ(router_.workers().weights().at("llama").at(""), 2);
  EXPECT_EQ(level(router_), "1");
  EXPECT_EQ(control_.settings().drained.size(), 2U);
}

}  // namespace
}  // namespace fo::test
