#include "canary/judge/vote.h"

#include <gtest/gtest.h>

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
}

}  // namespace
}  // namespace fo::canary
