#include "canary/judge/vote.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace fo::canary {
namespace {

using enum Ballot;

Decision decide_of(const std::vector<Ballot>& ballots) { return decide(ballots); }

TEST(Vote, AMajorityWithTheSuspectConvicts) {
  EXPECT_EQ(decide_of({kExpected, kExpected}), Decision::kConviction);
  EXPECT_EQ(decide_of({kExpected, kExpected, kNone}), Decision::kConviction);
  EXPECT_EQ(decide_of({kExpected, kExpected, kExpected, kSame}), Decision::kConviction);
}

TEST(Vote, WithoutAMajorityNobodyIsConvicted) {
  EXPECT_EQ(decide_of({}), Decision::kUndecided);
  EXPECT_EQ(decide_of({kNone, kNone}), Decision::kUndecided);
  EXPECT_EQ(decide_of({kExpected}), Decision::kUndecided);
  EXPECT_EQ(decide_of({kExpected, kExpected, kSame}), Decision::kUndecided);
  EXPECT_EQ(decide_of({kOther, kOther}), Decision::kUndecided);
}

TEST(Vote, TheSameDifferenceEverywhereIsAChangedModel) {
  EXPECT_EQ(decide_of({kSame}), Decision::kStale);
  EXPECT_EQ(decide_of({kSame, kSame, kNone}), Decision::kStale);
  EXPECT_EQ(decide_of({kSame, kSame, kOther}), Decision::kUndecided);
  // Too few answer.
  EXPECT_EQ(decide_of({kSame, kNone}), Decision::kUndecided);
  EXPECT_EQ(decide_of({kSame, kNone, kNone, kNone}), Decision::kUndecided);
}

TEST(Vote, ABallotComparesTheAnswerWithTheFileAndTheSuspect) {
  const Canary canary{
      .name = "rivers",
      .prompt = {1},
      .max_tokens = 3,
      .answer = {{.token = 7, .logprob = -0.5, .top = {{"a", -0.5}, {"b", -3}}},
                 {.token = 8, .logprob = -0.5, .top = {{"a", -0.5}, {"b", -0.75}}}}};
  const std::vector<TokenId> suspect{6, 8};
  const auto ballot = [&](const std::optional<std::vector<TokenId>>& answer) {
    return ballot_of(canary, suspect, answer);
  };
  EXPECT_EQ(ballot(std::nullopt), kNone);
  EXPECT_EQ(ballot({{7, 8}}), kExpected);
  EXPECT_EQ(ballot({{6, 8}}), kSame);
  EXPECT_EQ(ballot({{6, 9}}), kOther);
  EXPECT_EQ(ballot({{6}}), kOther);
  EXPECT_EQ(ballot(std::vector<TokenId>{}), kOther);
  // Where good engines may differ, and after the expected end.
  EXPECT_EQ(ballot({{7, 9}}), kNone);
  EXPECT_EQ(ballot({{7, 8, 9}}), kNone);
}

}  // namespace
}  // namespace fo::canary
