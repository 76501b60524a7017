#include "engine/health.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/environment.h"
#include "support/failure.h"

namespace fo::engine {
namespace {

using namespace std::chrono_literals;
using base::ExitStatus;
using enum EngineState;
using test::failure_of;

/// The rule that decides while Active.
enum class Branch { kEndpoints, kTargets, kEngine };

constexpr base::Duration kLimit = 60s;

struct Case {
  EngineState state;
  Branch branch;
  bool ready_at_start;
  bool past_waking_limit;
  /// The endpoints of the branch are ready; the two other branches have the opposite.
  bool branch_ready;
};

HealthRules rules_of(const Case& c) {
  HealthRules rules;
  rules.ready_at_start = c.ready_at_start;
  rules.waking_limit = kLimit;
  if (c.branch == Branch::kEndpoints) rules.endpoints = {"generate", "embed"};
  return rules;
}

HealthFacts facts_of(const Case& c) {
  HealthFacts facts;
  facts.state = c.state;
  facts.in_state = c.past_waking_limit ? kLimit + 1ns : kLimit;
  facts.since = 1763750000.25;
  facts.endpoints = {{"generate", (c.branch == Branch::kEndpoints) == c.branch_ready},
                     {"embed", (c.branch == Branch::kEndpoints) == c.branch_ready},
                     {"target", (c.branch == Branch::kTargets) == c.branch_ready}};
  if (c.branch != Branch::kEngine) facts.targets = {"target"};
  facts.engine_ready = (c.branch == Branch::kEngine) == c.branch_ready;
  return facts;
}

bool expected(const Case& c) {
  switch (c.state) {
    case kInit:
      return c.ready_at_start;
    case kStandby:
      return true;
    case kWaking:
      return !c.past_waking_limit;
    case kActive:
      return c.branch_ready;
    case kDead:
      break;
  }
  return false;
}

TEST(Health, EveryStateInEveryBranch) {
  int cases = 0;
  for (const EngineState state : kAllStates) {
    for (const Branch branch : {Branch::kEndpoints, Branch::kTargets, Branch::kEngine}) {
      for (int bits = 0; bits < 8; ++bits) {
        const Case c{state, branch, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
        const HealthAnswer answer = answer_health(rules_of(c), facts_of(c));
        EXPECT_EQ(answer.ready, expected(c))
            << state_name(state) << " branch " << static_cast<int>(branch) << " bits " << bits;
        const auto body = nlohmann::json::parse(answer.body);
        EXPECT_EQ(body.at("status"), answer.ready ? "ready" : "notready");
        EXPECT_EQ(body.at("state"), state_name(state));
        EXPECT_EQ(body.at("since"), 1763750000.25);
        EXPECT_EQ(body.at("endpoints").size(), 3U);
        EXPECT_EQ(body.contains("reason"), !answer.ready);
        ++cases;
      }
    }
  }
  EXPECT_EQ(cases, 120);
}

TEST(Health, OneEndpointOfSeveralIsEnoughForNo) {
  const HealthRules rules{.endpoints = {"generate", "embed"}};
  HealthFacts facts;
  facts.state = kActive;
  facts.engine_ready = true;
  facts.endpoints = {{"generate", true}, {"embed", false}};
  const HealthAnswer answer = answer_health(rules, facts);
  EXPECT_FALSE(answer.ready);
  EXPECT_EQ(answer.body, R"({"endpoints":{"embed":"notready","generate":"ready"},)"
                         R"("reason":"endpoint 'embed' is not ready","since":0.0,"state":"active",)"
                         R"("status":"notready"})");
}

TEST(Health, AnEndpointThatNobodyRegisteredIsNotReadyAndIsShown) {
  const HealthRules rules{.endpoints = {"generate"}};
  HealthFacts facts;
  facts.state = kActive;
  facts.engine_ready = true;
  HealthAnswer answer = answer_health(rules, facts);
  EXPECT_FALSE(answer.ready);
  EXPECT_EQ(nlohmann::json::parse(answer.body).at("endpoints").at("generate"), "notready");
  facts.targets = {"other"};
  answer = answer_health({}, facts);
  EXPECT_FALSE(answer.ready);
  EXPECT_EQ(nlohmann::json::parse(answer.body).at("endpoints").at("other"), "notready");
}

TEST(Health, SaysWhatIsWrongWithTheEngine) {
  HealthFacts facts;
  facts.state = kActive;
  facts.reason = "no answer\xff in time";
  const auto body = nlohmann::json::parse(answer_health({}, facts).body);
  EXPECT_EQ(body.at("reason"), "no answer\uFFFD in time");
}

/// Both variables are unset at first.
class HealthEnvironment : public testing::Test {
 protected:
  void start(const char* value) { environment_.set("DYN_SYSTEM_STARTING_HEALTH_STATUS", value); }
  void endpoints(const char* value) {
    environment_.set("DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS", value);
  }

 private:
  test::Environment environment_{"DYN_SYSTEM_STARTING_HEALTH_STATUS",
                                 "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS"};
};

TEST_F(HealthEnvironment, WithoutVariablesInitIsNotReady) {
  const HealthRules rules = health_rules_from_environment();
  EXPECT_FALSE(rules.ready_at_start);
  EXPECT_TRUE(rules.endpoints.empty());
}

TEST_F(HealthEnvironment, ReadsWhatInitAnswers) {
  start("ready");
  EXPECT_TRUE(health_rules_from_environment().ready_at_start);
  start("notready");
  EXPECT_FALSE(health_rules_from_environment().ready_at_start);
  for (const char* bad : {"", "Ready", "ready ", "1", "healthy"}) {
    start(bad);
    const auto failure = failure_of([] { health_rules_from_environment(); });
    EXPECT_EQ(failure.status, ExitStatus::kConfig);
    EXPECT_EQ(failure.message, "read DYN_SYSTEM_STARTING_HEALTH_STATUS '" + std::string(bad) +
                                   "': neither 'ready' nor 'notready'");
  }
}

TEST_F(HealthEnvironment, ReadsTheEndpointsInBothSpellings) {
  using Names = std::vector<std::string>;
  for (const auto& [text, names] : std::vector<std::pair<const char*, Names>>{
           {"", {}},
           {"  ", {}},
           {"[]", {}},
           {R"(["generate"])", {"generate"}},
           {R"( [ "generate" , "a,b" ] )", {"generate", "a,b"}},
           {"generate", {"generate"}},
           {"generate,embed", {"generate", "embed"}},
           {" generate , embed ", {"generate", "embed"}}}) {
    endpoints(text);
    EXPECT_EQ(health_rules_from_environment().endpoints, names) << text;
  }
}

TEST_F(HealthEnvironment, RefusesEndpointsThatAreNoNames) {
  for (const char* bad : {"[", R"(["a")", "[1]", R"([""])", "[[]]", "[null]", ",", "a,", ",a",
                          "a,,b", R"(["a"] b)"}) {
    endpoints(bad);
    const auto failure = failure_of([] { health_rules_from_environment(); });
    EXPECT_EQ(failure.status, ExitStatus::kConfig) << bad;
    EXPECT_EQ(failure.message.rfind("read DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS '", 0), 0U);
  }
}

}  // namespace
}  // namespace fo::engine
