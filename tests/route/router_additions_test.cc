// Members that the router adds to the bodies of requests, as oracle engines receive them.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "fleet/card/digest.h"
#include "route/fleet.h"
#include "route/resume/disturbed.h"

namespace fo::test {
namespace {

using nlohmann::json;

class RouterAdditions : public FdCounting {
 protected:
  /// Two engines, the first of which ends in the middle of its next answer.
  struct Workers {
    explicit Workers(const route::RequestRules& rules) : fleet(with_keys(rules)) {
      oracle::EngineOptions engine;
      engine.on_request = [this](const json& body) { bodies.push_back(body); };
      fleet.add_engines(2, engine);
    }
    Client ask(const json& body, const std::string& key) {
      return fleet.ask(body, path_of_answer(body), {{"authorization", "Bearer " + key}});
    }
    /// Asks until the engine has ended, and another one has continued the answer.
    void ask_until_resumed(const json& body, const std::string& key) {
      fleet.fail_next(0, "exit@8");
      while (fleet.resumes("resumed") == "0") ASSERT_EQ(ask(body, key)->status(), 200);
    }
    /// The values of a member in the bodies that the engines have received, as text.
    [[nodiscard]] std::set<std::string> values(const char* name) const {
      std::set<std::string> values;
      for (const json& body : bodies) values.insert(body.value(name, json("none")).dump());
      return values;
    }
    [[nodiscard]] bool has_continuation() const {
      return std::any_of(bodies.begin(), bodies.end(), [](const json& body) {
        return body.contains("prompt") && body["prompt"].is_array();
      });
    }

    std::vector<json> bodies;
    DisturbedFleet fleet;

   private:
    /// "high" is premium, "low" best effort.
    static route::RouterOptions with_keys(const route::RequestRules& rules) {
      route::RouterOptions options = in_turns();
      options.rules = rules;
      options.keys.emplace();
      (*options.keys)[fleet::sha256_hex("high")].tier = plan::kPremium;
      (*options.keys)[fleet::sha256_hex("low")].tier = plan::kBestEffort;
      return options;
    }
  };

  static std::vector<json> all_kinds() {
    std::vector<json> kinds;
    for (const bool is_chat : {true, false}) {
      kinds.push_back(long_answer(is_chat));
      kinds.push_back(in_one_piece(long_answer(is_chat)));
      // Such an answer can't be resumed: the body goes to the worker as it is.
      kinds.push_back(long_answer(is_chat, {{"n", 2}}));
    }
    return kinds;
  }
};

TEST_F(RouterAdditions, EachKeyHasASaltInAllItsRequests) {
  for (const json& body : all_kinds()) {
    Workers workers({.salt_by_key = true});
    EXPECT_EQ(workers.ask(body, "high")->status(), 200);
    const std::set<std::string> salt = workers.values("cache_salt");
    ASSERT_EQ(salt.size(), 1U);
    EXPECT_NE(salt, std::set<std::string>{"\"none\""});
    if (!body.contains("n")) {
      workers.ask_until_resumed(body, "high");
      EXPECT_TRUE(workers.has_continuation());
      EXPECT_EQ(workers.values("cache_salt"), salt);
    }
    EXPECT_EQ(workers.ask(body, "low")->status(), 200);
    EXPECT_EQ(workers.values("cache_salt").size(), 2U);
  }
}

TEST_F(RouterAdditions, AClientsSaltIsUsedInItsContinuationToo) {
  Workers workers({.salt_by_key = true});
  workers.ask_until_resumed(long_answer(true, {{"cache_salt", "mine"}}), "high");
  EXPECT_TRUE(workers.has_continuation());
  EXPECT_EQ(workers.values("cache_salt"), std::set<std::string>{"\"mine\""});
}

TEST_F(RouterAdditions, TheTierIsThePriorityOfAllItsRequests) {
  for (const json& body : all_kinds()) {
    Workers workers({.priority_by_tier = true});
    EXPECT_EQ(workers.ask(body, "low")->status(), 200);
    if (!body.contains("n")) {
      workers.ask_until_resumed(body, "low");
      EXPECT_TRUE(workers.has_continuation());
    }
    EXPECT_EQ(workers.values("priority"), std::set<std::string>{"2"});
    // At a level at which each tier is still served, too.
    workers.fleet.router().pin_level(1);
    EXPECT_EQ(workers.ask(body, "low")->status(), 200);
    EXPECT_EQ(workers.values("priority"), std::set<std::string>{"2"});
    EXPECT_EQ(workers.ask(body, "high")->status(), 200);
    EXPECT_EQ(workers.values("priority"), (std::set<std::string>{"0", "2"}));
  }
}

TEST_F(RouterAdditions, AClientsPriorityIsUsedInItsContinuationToo) {
  Workers workers({.allowed_fields = {"priority"}, .priority_by_tier = true});
  workers.ask_until_resumed(long_answer(true, {{"priority", -3}}), "high");
  EXPECT_TRUE(workers.has_continuation());
  EXPECT_EQ(workers.values("priority"), std::set<std::string>{"-3"});
}

TEST_F(RouterAdditions, NothingIsAddedUnlessAsked) {
  Workers workers({});
  for (const json& body : all_kinds()) EXPECT_EQ(workers.ask(body, "high")->status(), 200);
  EXPECT_EQ(workers.values("cache_salt"), std::set<std::string>{"\"none\""});
  EXPECT_EQ(workers.values("priority"), std::set<std::string>{"\"none\""});
}

}  // namespace
}  // namespace fo::test
