#include "canary/file/learn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "canary/oracles.h"

namespace fo::canary {
namespace {

using fo::oracle::test::RunningOracle;
using testing::HasSubstr;
using testing::Not;

// Some of which are kept.
constexpr std::size_t kPrompts = 12;

TEST(Learn, TheSamplersAnswerCountsOnlyAsFarAsTheCanary) {
  const Canary canary{.name = "rivers", .prompt = {1}, .answer = {{.token = 7}, {.token = 8}}};
  EXPECT_TRUE(agrees_with(canary, {7, 8}));
  EXPECT_TRUE(agrees_with(canary, {7, 8, 9}));
  EXPECT_FALSE(agrees_with(canary, {7}));
  EXPECT_FALSE(agrees_with(canary, {7, 9, 9}));
  EXPECT_FALSE(agrees_with(canary, {}));
}

TEST(Learn, AGreedySamplerIsAsked) {
  const RunningOracle one;
  const RunningOracle other;
  EXPECT_TRUE(learned_from(one, other, kPrompts).file.has_sampler);
}

TEST(Learn, ASamplerWithOtherAnswersIsNot) {
  const RunningOracle one;
  const RunningOracle other({.knobs = {.wrong_sampler = true}});
  const Learned learned = learned_from(one, other, kPrompts);
  EXPECT_FALSE(learned.file.has_sampler);
  EXPECT_FALSE(learned.file.canaries.empty());
}

TEST(Learn, AnEngineThatIsBusyIsAskedAgain) {
  // At least one of six questions to a sampler is refused.
  const RunningOracle one({.knobs = {.refuse_every = 6}});
  const RunningOracle other({.knobs = {.refuse_every = 6}});
  const Learned learned = learned_from(one, other, kPrompts);
  for (const std::string& line : learned.left_out) EXPECT_THAT(line, Not(HasSubstr("status")));
  EXPECT_TRUE(learned.file.has_sampler);
}

TEST(Learn, TheSpreadIsThatOfTheReplicas) {
  const RunningOracle one({.knobs = {.logprob_noise = 0.01}});
  const RunningOracle other;
  const Learned learned = learned_from(one, other, kPrompts);
  EXPECT_FALSE(learned.file.canaries.empty());
  for (const Canary& canary : learned.file.canaries) {
    EXPECT_GT(canary.spread, 0);
    EXPECT_LE(canary.spread, 0.02);
  }
}

}  // namespace
}  // namespace fo::canary
