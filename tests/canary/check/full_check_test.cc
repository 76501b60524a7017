#include "canary/check/full_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "canary/oracles.h"
#include "loop/spawn.h"

namespace fo::canary {
namespace {

using fo::oracle::Fault;
using fo::oracle::Knobs;
using fo::oracle::test::RunningOracle;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

class FullCheckOfOracle : public testing::Test {
 protected:
  FullCheckOfOracle() {
    EXPECT_TRUE(file_.has_sampler);
    EXPECT_FALSE(file_.canaries.empty());
    options_.rules.probe_timeout = std::chrono::seconds(30);
    options_.first_token = std::chrono::seconds(30);
    options_.retry_pause = milliseconds(1);
    options_.hung_after = milliseconds(100);
  }

  FullCheck checked(const Knobs& knobs) {
    oracle_.set(knobs);
    fo::test::TestLoop loop;
    return loop.run(check_fully(address_of(oracle_), file_, options_));
  }

  RunningOracle oracle_;
  const CanaryFile& file_ = file_of_oracles();
  CheckerOptions options_;
};

std::vector<std::string> parts_of(const FullCheck& check) {
  std::vector<std::string> parts;
  for (const FullCheck::Part& part : check.parts) {
    parts.push_back(std::string(to_string(part.step)) + " " +
                    std::string(to_string(part.attempt.outcome)) +
                    (part.attempt.uses_sampler ? " sampler" : ""));
  }
  return parts;
}

TEST_F(FullCheckOfOracle, AGoodEnginePassesEachPart) {
  const FullCheck check = checked({});
  EXPECT_EQ(check.health(), EngineHealth::kHealthy);
  EXPECT_EQ(check.decisive(), nullptr);
  EXPECT_THAT(parts_of(check), ElementsAre("connect pass", "health pass", "progress pass",
                                           "token pass", "content pass", "content pass sampler"));
}

TEST_F(FullCheckOfOracle, WrongTokensThatComeAgainAreUnhealthy) {
  const FullCheck check = checked({.fail = {.kind = Fault::Kind::kWrong, .first = 2, .last = 2}});
  EXPECT_EQ(check.health(), EngineHealth::kUnhealthy);
  ASSERT_NE(check.decisive(), nullptr);
  EXPECT_EQ(check.decisive()->attempt.outcome, Outcome::kMismatch);
  EXPECT_EQ(check.decisive()->attempt.evidence->position, 2U);
  EXPECT_EQ(check.parts.size(), 5U);
}

TEST_F(FullCheckOfOracle, AWrongSamplerIsFoundBesideARightGreedyPath) {
  const FullCheck check = checked({.wrong_sampler = true});
  EXPECT_EQ(check.health(), EngineHealth::kUnhealthy);
  EXPECT_THAT(parts_of(check),
              ElementsAre("connect pass", "health pass", "progress pass", "token pass",
                          "content pass", "content mismatch sampler"));
}

TEST_F(FullCheckOfOracle, LogProbabilitiesThatAreOffAreSuspicious) {
  const FullCheck check = checked({.logprob_noise = 0.5});
  EXPECT_EQ(check.health(), EngineHealth::kSuspicious);
  EXPECT_EQ(check.decisive()->attempt.outcome, Outcome::kDrift);
  EXPECT_EQ(checked({.logprob_noise = 0.01}).health(), EngineHealth::kHealthy);
}

TEST_F(FullCheckOfOracle, AnEngineThatLiesAboutItsHealthIsHung) {
  options_.first_token = milliseconds(500);
  const FullCheck check = checked({.fail = {.kind = Fault::Kind::kStall, .at_start = true}});
  EXPECT_EQ(check.health(), EngineHealth::kUnhealthy);
  EXPECT_THAT(parts_of(check),
              ElementsAre("connect pass", "health pass", "progress pass", "token hung"));
  EXPECT_GT(check.decisive()->attempt.took, base::Duration(0));
}

TEST_F(FullCheckOfOracle, RequestsThatRunWithoutTokensAreHung) {
  oracle_.set({.fail = {.kind = Fault::Kind::kStall, .first = 2, .last = 2}});
  fo::test::TestLoop loop;
  loop::spawn(loop.io(),
              loop::without_result(ask(address_of(oracle_), {.text = "the", .max_tokens = 8},
                                       std::chrono::seconds(30), fo::test::soon())));
  loop.run_until([&] { return oracle_.counts().faults == 1; });
  const FullCheck check = loop.run(check_fully(address_of(oracle_), file_, options_));
  EXPECT_THAT(parts_of(check), ElementsAre("connect pass", "health pass", "progress hung"));
  EXPECT_THAT(check.decisive()->attempt.reason, HasSubstr("no token came"));
}

TEST_F(FullCheckOfOracle, AnEngineThatRefusesIsUnknown) {
  const FullCheck busy = checked({.refuse_next = 1'000'000});
  EXPECT_EQ(busy.health(), EngineHealth::kUnknown);
  EXPECT_EQ(busy.decisive()->step, Step::kToken);
  const FullCheck ill = checked({.health = "no"});
  EXPECT_EQ(ill.health(), EngineHealth::kUnhealthy);
  EXPECT_THAT(parts_of(ill), ElementsAre("connect pass", "health failed"));
}

}  // namespace
}  // namespace fo::canary
