#include "canary/check/attempt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fo::canary {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

constexpr double kTolerance = 0.25;

AnswerToken likely(TokenId id, double logprob) {
  return {.token = id, .logprob = logprob, .top = {{"a", logprob}, {"b", logprob - 2}}};
}

// Its second token has no safe margin.
Canary question_of_two() {
  Canary canary{.name = "rivers", .prompt = {1}, .max_tokens = 2};
  canary.answer = {likely(7, -0.5), likely(8, -0.5)};
  canary.answer[1].top["b"] = -0.75;
  return canary;
}

Attempt judged(std::vector<AnswerToken> tokens, bool uses_sampler = false) {
  Reply reply;
  reply.answer = {.tokens = std::move(tokens), .finish = "length"};
  reply.whole = milliseconds(30);
  return judge(question_of_two(), reply, uses_sampler, kTolerance);
}

TEST(Attempt, ItsOutcomesHaveDifferentNames) {
  std::set<std::string_view> names;
  for (const Outcome outcome : kOutcomes) names.insert(to_string(outcome));
  EXPECT_EQ(names.size(), std::size(kOutcomes));
  EXPECT_EQ(to_string(Outcome::kFailed), "failed");
}

TEST(Attempt, AnErrorIsAnOutcomeWithoutEvidence) {
  const std::array outcomes{
      std::pair(AskError::kDown, Outcome::kDown),
      std::pair(AskError::kLate, Outcome::kHung),
      std::pair(AskError::kBusy, Outcome::kNeutral),
      std::pair(AskError::kRefused, Outcome::kNeutral),
      std::pair(AskError::kUnnamed, Outcome::kNeutral),
      std::pair(AskError::kBroken, Outcome::kFailed)};
  for (const auto& [error, outcome] : outcomes) {
    // The part of the answer that came is wrong, and does not count.
    Reply reply{.error = error, .reason = "because"};
    reply.answer.tokens = {likely(6, -0.5)};
    const Attempt attempt = judge(question_of_two(), reply, false, kTolerance);
    EXPECT_EQ(attempt.outcome, outcome);
    EXPECT_EQ(attempt.reason, "because");
    EXPECT_EQ(attempt.canary, "rivers");
    EXPECT_FALSE(attempt.evidence);
    EXPECT_TRUE(attempt.tokens.empty());
  }
}

TEST(Attempt, AnAnswerIsCompared) {
  const Attempt pass = judged(question_of_two().answer);
  EXPECT_EQ(pass.outcome, Outcome::kPass);
  EXPECT_EQ(pass.took, milliseconds(30));
  EXPECT_EQ(pass.reason, "");
  EXPECT_EQ(judged({likely(7, -0.5), likely(9, -0.5)}).outcome, Outcome::kNeutral);
  std::vector<AnswerToken> drifted = question_of_two().answer;
  drifted[0].logprob = -1;
  EXPECT_EQ(judged(drifted).outcome, Outcome::kDrift);
  const Attempt mismatch = judged({likely(6, -0.5), likely(8, -0.5)});
  EXPECT_EQ(mismatch.outcome, Outcome::kMismatch);
  EXPECT_THAT(mismatch.tokens, ElementsAre(6U, 8U));
  ASSERT_TRUE(mismatch.evidence);
  EXPECT_EQ(mismatch.evidence->position, 0U);
}

TEST(Attempt, OfTheSamplerOnlyTheTokensAreCompared) {
  const Attempt pass = judged({{.token = 7}, {.token = 8}}, true);
  EXPECT_EQ(pass.outcome, Outcome::kPass);
  EXPECT_TRUE(pass.uses_sampler);
  EXPECT_EQ(judged({{.token = 7}, {.token = 8}}).outcome, Outcome::kDrift);
  EXPECT_EQ(judged({{.token = 6}, {.token = 8}}, true).outcome, Outcome::kMismatch);
}

CanaryFile file_of(std::vector<std::string> names) {
  CanaryFile file;
  for (std::string& name : names) file.canaries.push_back({.name = std::move(name), .prompt = {1}});
  return file;
}

TEST(Draw, ReachesEachCanary) {
  const CanaryFile file = file_of({"a", "b", "c", "d"});
  EXPECT_EQ(draw_canary(file, "", 0).name, "a");
  EXPECT_EQ(draw_canary(file, "", 0.25).name, "b");
  EXPECT_EQ(draw_canary(file, "", 0.74).name, "c");
  EXPECT_EQ(draw_canary(file, "", 0.999'999'999).name, "d");
  EXPECT_EQ(draw_canary(file, "", 1).name, "d");
}

TEST(Draw, TakesAnotherOneThanTheLastWhereThereIsOne) {
  const CanaryFile file = file_of({"a", "b"});
  for (const double random : {0.0, 0.3, 0.5, 0.9}) {
    EXPECT_EQ(draw_canary(file, "a", random).name, "b");
    EXPECT_EQ(draw_canary(file, "b", random).name, "a");
  }
  EXPECT_EQ(draw_canary(file_of({"a"}), "a", 0.5).name, "a");
}

}  // namespace
}  // namespace fo::canary
