#include "canary/check/comparison.h"

#include <gtest/gtest.h>

#include <vector>

namespace fo::canary {
namespace {

// A token that is `margin` more likely than the next one. All numbers are sums of powers of 2, so
// that they are exact.
AnswerToken token_of(TokenId id, double margin = 2) {
  return {.token = id, .logprob = -0.25, .top = {{"a", -0.25}, {"b", -0.25 - margin}}};
}

Canary canary_of(std::vector<AnswerToken> answer) {
  return {.name = "rivers",
          .prompt = {1},
          .max_tokens = 8,
          .answer = std::move(answer),
          .spread = 0.125};
}

Answer answer_of(std::vector<AnswerToken> tokens) {
  return {.tokens = std::move(tokens), .finish = "length"};
}

Comparison compare_ids(const std::vector<AnswerToken>& expected, std::vector<TokenId> got) {
  return compare_tokens(canary_of(expected), got);
}

TEST(Comparison, TheSameTokensAreTheSame) {
  const Comparison same = compare_ids({token_of(7), token_of(8)}, {7, 8});
  EXPECT_EQ(same.match, Match::kSame);
  EXPECT_FALSE(same.evidence);
}

TEST(Comparison, TheFirstOtherTokenIsTheEvidence) {
  const Comparison other = compare_ids({token_of(7), token_of(8), token_of(9)}, {7, 5, 4});
  EXPECT_EQ(other.match, Match::kMismatch);
  ASSERT_TRUE(other.evidence);
  EXPECT_EQ(other.evidence->canary, "rivers");
  EXPECT_EQ(other.evidence->position, 1U);
  EXPECT_EQ(other.evidence->expected, "8");
  EXPECT_EQ(other.evidence->got, "5");
}

TEST(Comparison, WhereTheBestTwoAreCloseAnotherTokenSaysNothing) {
  for (const double margin : {0.0, 0.25, 0.4375}) {
    // Also if the rest differs where the margin is safe.
    const Comparison other = compare_ids({token_of(7, margin), token_of(8)}, {6, 5});
    EXPECT_EQ(other.match, Match::kUncertain) << margin;
    EXPECT_EQ(other.evidence->position, 0U);
  }
  EXPECT_EQ(compare_ids({token_of(7, kSafeMargin)}, {6}).match, Match::kMismatch);
}

TEST(Comparison, AChosenTokenThatIsNotTheBestOneHasNoSafeMargin) {
  AnswerToken sampled = token_of(7);
  sampled.logprob = -2.25;
  EXPECT_EQ(compare_ids({sampled}, {6}).match, Match::kUncertain);
}

TEST(Comparison, AnAnswerThatEndsEarlyDiffersAtItsEnd) {
  const Comparison shorter = compare_ids({token_of(7), token_of(8)}, {7});
  EXPECT_EQ(shorter.match, Match::kMismatch);
  EXPECT_EQ(shorter.evidence->position, 1U);
  EXPECT_EQ(shorter.evidence->expected, "8");
  EXPECT_EQ(shorter.evidence->got, "end");
  EXPECT_EQ(compare_ids({token_of(7)}, {}).match, Match::kMismatch);
  EXPECT_EQ(compare_ids({token_of(7, 0.25)}, {}).match, Match::kUncertain);
}

TEST(Comparison, AnAnswerThatGoesOnIsNotTheExpectedOne) {
  const Comparison longer = compare_ids({token_of(7), token_of(8)}, {7, 8, 9, 10});
  EXPECT_EQ(longer.match, Match::kUncertain);
  ASSERT_TRUE(longer.evidence);
  EXPECT_EQ(longer.evidence->position, 2U);
  EXPECT_EQ(longer.evidence->expected, "end");
  EXPECT_EQ(longer.evidence->got, "9");
}

TEST(Comparison, DriftIsMoreThanTheSpreadAndTheTolerance) {
  const Canary canary = canary_of({token_of(7), token_of(8)});
  AnswerToken drifted = token_of(8);
  drifted.logprob -= canary.spread + 0.25;
  EXPECT_EQ(compare(canary, answer_of({token_of(7), drifted}), 0.25).match, Match::kSame);
  const Comparison beyond = compare(canary, answer_of({token_of(7), drifted}), 0.2499);
  EXPECT_EQ(beyond.match, Match::kDrift);
  ASSERT_TRUE(beyond.evidence);
  EXPECT_EQ(beyond.evidence->position, 1U);
  EXPECT_EQ(beyond.evidence->expected, "-0.2500");
  EXPECT_EQ(beyond.evidence->got, "-0.6250");
  // A token that is more likely than expected has drifted, too.
  drifted.logprob = -0.25 + 0.376;
  EXPECT_EQ(compare(canary, answer_of({token_of(7), drifted}), 0.25).match, Match::kDrift);
}

TEST(Comparison, AnotherTokenCountsMoreThanDrift) {
  AnswerToken drifted = token_of(7);
  drifted.logprob = -5;
  const Canary canary = canary_of({token_of(7), token_of(8)});
  EXPECT_EQ(compare(canary, answer_of({drifted, token_of(9)}), 0.25).match, Match::kMismatch);
}

TEST(Deviation, IsTheLargestDifferenceOfAnyOfTheBest) {
  AnswerToken drifted = token_of(8);
  drifted.logprob = -0.5;
  drifted.top = {{"a", -0.5}, {"b", -3.25}, {"c", -9}};
  const Deviation deviation =
      deviation_of(std::vector{token_of(7), token_of(8)}, std::vector{token_of(7), drifted});
  EXPECT_EQ(deviation.size, 1);
  EXPECT_EQ(deviation.position, 1U);
  EXPECT_EQ(deviation.expected, "b -2.2500");
  EXPECT_EQ(deviation.got, "b -3.2500");
}

TEST(Deviation, OfATokenThatIsNotAmongTheBestTheLowestOfThemIsTheLimit) {
  AnswerToken got = token_of(7);
  got.top = {{"a", -0.25}, {"c", -4.25}};
  const std::vector expected{token_of(7)};
  // "b" had -2.25, and now has -4.25 or less.
  EXPECT_EQ(deviation_of(expected, std::vector{got}).size, 2);
  EXPECT_EQ(deviation_of(expected, std::vector{got}).got, "b -4.2500");
  // Where the limit is higher than what was expected, nothing is known to differ.
  got.top = {{"a", -0.25}, {"c", -2}};
  EXPECT_EQ(deviation_of(expected, std::vector{got}).size, 0);
}

TEST(Deviation, WithoutTheBestTokensTheChosenOnesAreCompared) {
  AnswerToken got = token_of(7);
  got.top.clear();
  const std::vector expected{token_of(7)};
  EXPECT_EQ(deviation_of(expected, std::vector{got}).size, 0);
  got.logprob = -1.25;
  EXPECT_EQ(deviation_of(expected, std::vector{got}).size, 1);
  EXPECT_EQ(deviation_of(std::vector{got}, std::vector{got}).size, 0);
}

TEST(Deviation, ComparesWhatBothHave) {
  const std::vector longer{token_of(7), AnswerToken{.token = 8, .logprob = -9}};
  EXPECT_EQ(deviation_of(std::vector{token_of(7)}, longer).size, 0);
  EXPECT_EQ(deviation_of(longer, std::vector{token_of(7)}).size, 0);
  EXPECT_EQ(deviation_of({}, {}).size, 0);
}

}  // namespace
}  // namespace fo::canary
