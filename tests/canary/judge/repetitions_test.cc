#include "canary/judge/repetitions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace fo::canary {
namespace {

using Next = Repetitions::Next;

Attempt attempt_of(Outcome outcome) {
  Attempt attempt{.outcome = outcome, .canary = "rivers", .reason = "because"};
  if (outcome == Outcome::kMismatch || outcome == Outcome::kDrift) {
    attempt.evidence =
        fleet::Evidence{.canary = "rivers", .position = 3, .expected = "7", .got = "8"};
  }
  return attempt;
}

// The answers of one check, until it is done.
struct Asked {
  std::vector<Outcome> outcomes;
  std::vector<Next> next;
  Conclusion conclusion;
};

bool is_answer(Outcome outcome) {
  return outcome == Outcome::kPass || outcome == Outcome::kSlow || outcome == Outcome::kDrift ||
         outcome == Outcome::kMismatch;
}

// Calls `on_end` for each sequence of outcomes that ends a check, and fails if one is longer than
// `limit`. A vote has the decision.
void walk(const Repetitions& repetitions, Asked asked, std::size_t limit, Decision decision,
          const std::function<void(const Asked&)>& on_end) {
  for (const Outcome outcome : kOutcomes) {
    Repetitions after = repetitions;
    Asked more = asked;
    more.outcomes.push_back(outcome);
    more.next.push_back(after.add(attempt_of(outcome)));
    if (more.next.back() == Next::kVote) after.decide(decision);
    if (more.next.back() == Next::kVote || more.next.back() == Next::kDone) {
      more.conclusion = after.conclusion();
      on_end(more);
      continue;
    }
    ASSERT_LT(more.outcomes.size(), limit);
    walk(after, more, limit, decision, on_end);
  }
}

void walk_all(unsigned retries, const std::function<void(const Asked&, Decision)>& on_end) {
  for (const Decision decision : kDecisions) {
    walk(Repetitions(retries), {}, 2 * retries + 2, decision,
         [&](const Asked& asked) { on_end(asked, decision); });
  }
}

std::string text_of(const Asked& asked) {
  std::string text;
  for (const Outcome outcome : asked.outcomes) text += std::string(to_string(outcome)) + " ";
  return text;
}

TEST(Repetitions, OnlyAnAnswerSpeaksForAWorker) {
  for (const unsigned retries : {0U, 1U, 2U}) {
    walk_all(retries, [&](const Asked& asked, Decision decision) {
      const Finding finding = asked.conclusion.finding;
      const Outcome first = asked.outcomes.front();
      const Outcome last = asked.outcomes.back();
      const bool was_wrong =
          std::count(asked.outcomes.begin(), asked.outcomes.end(), Outcome::kMismatch) > 0;
      // Wrong tokens are never a pass, and neutral only by the vote.
      if (finding == Finding::kPass) {
        ASSERT_TRUE(last == Outcome::kPass && !was_wrong) << text_of(asked);
      }
      if (finding == Finding::kNeutral) {
        const bool is_stale = asked.next.back() == Next::kVote && decision == Decision::kStale;
        ASSERT_TRUE(is_stale || (first == Outcome::kNeutral && asked.outcomes.size() == 1))
            << text_of(asked);
      }
      // A conviction takes wrong tokens twice and a vote.
      if (finding == Finding::kConviction) {
        ASSERT_EQ(std::count(asked.outcomes.begin(), asked.outcomes.end(), Outcome::kMismatch), 2)
            << text_of(asked);
        ASSERT_EQ(decision, Decision::kConviction);
      }
      if (was_wrong && asked.next.back() == Next::kDone) {
        ASSERT_EQ(finding, Finding::kFault) << text_of(asked);
        ASSERT_TRUE(asked.conclusion.cause.evidence) << text_of(asked);
      }
    });
  }
}

TEST(Repetitions, WrongTokensAreAskedForAgainUntilTheyAreAnswered) {
  walk_all(2, [](const Asked& asked, Decision) {
    bool was_wrong = false;
    for (std::size_t i = 0; i < asked.outcomes.size(); ++i) {
      const Outcome outcome = asked.outcomes[i];
      if (!was_wrong) {
        ASSERT_NE(asked.next[i], Next::kVote);
        ASSERT_EQ(asked.next[i] == Next::kSame, outcome == Outcome::kMismatch) << text_of(asked);
      } else if (outcome == Outcome::kMismatch) {
        ASSERT_EQ(asked.next[i], Next::kVote);
      } else if (is_answer(outcome)) {
        ASSERT_EQ(asked.next[i], Next::kDone) << text_of(asked);
      } else {
        ASSERT_TRUE(asked.next[i] == Next::kSame || asked.next[i] == Next::kDone);
      }
      was_wrong |= outcome == Outcome::kMismatch;
    }
  });
}

TEST(Repetitions, AFailedCheckIsRepeatedOnOtherCanaries) {
  Repetitions repetitions(2);
  EXPECT_EQ(repetitions.add(attempt_of(Outcome::kDrift)), Next::kAnother);
  EXPECT_EQ(repetitions.add(attempt_of(Outcome::kNeutral)), Next::kAnother);
  EXPECT_EQ(repetitions.add(attempt_of(Outcome::kNeutral)), Next::kDone);
  EXPECT_EQ(repetitions.conclusion().finding, Finding::kFault);
  EXPECT_EQ(repetitions.conclusion().cause.reason, "drift: because");
  EXPECT_EQ(repetitions.conclusion().attempt.outcome, Outcome::kDrift);
}

TEST(Repetitions, OnlyACheckWhoseFailuresWereAllSlowIsWeak) {
  const auto concluded = [](Outcome first, Outcome second) {
    Repetitions repetitions(1);
    EXPECT_EQ(repetitions.add(attempt_of(first)), Next::kAnother);
    EXPECT_EQ(repetitions.add(attempt_of(second)), Next::kDone);
    return repetitions.conclusion();
  };
  EXPECT_EQ(concluded(Outcome::kSlow, Outcome::kSlow).finding, Finding::kWeak);
  EXPECT_EQ(concluded(Outcome::kSlow, Outcome::kNeutral).finding, Finding::kWeak);
  EXPECT_EQ(concluded(Outcome::kSlow, Outcome::kHung).finding, Finding::kFault);
  EXPECT_EQ(concluded(Outcome::kHung, Outcome::kSlow).finding, Finding::kFault);
  EXPECT_EQ(concluded(Outcome::kHung, Outcome::kSlow).cause.reason, "hung: because");
  EXPECT_TRUE(concluded(Outcome::kDrift, Outcome::kSlow).cause.evidence);
}

TEST(Repetitions, ARepetitionWithoutAnAnswerDoesNotClearWrongTokens) {
  for (const Outcome silence :
       {Outcome::kNeutral, Outcome::kDown, Outcome::kHung, Outcome::kFailed}) {
    Repetitions repetitions(1);
    EXPECT_EQ(repetitions.add(attempt_of(Outcome::kMismatch)), Next::kSame);
    EXPECT_EQ(repetitions.add(attempt_of(silence)), Next::kSame);
    Repetitions answered = repetitions;
    EXPECT_EQ(answered.add(attempt_of(Outcome::kMismatch)), Next::kVote);
    EXPECT_EQ(answered.suspect().outcome, Outcome::kMismatch);
    EXPECT_EQ(repetitions.add(attempt_of(silence)), Next::kDone);
    EXPECT_EQ(repetitions.conclusion().finding, Finding::kFault);
    EXPECT_EQ(repetitions.conclusion().attempt.outcome, silence);
    EXPECT_EQ(repetitions.conclusion().cause.reason,
              std::string("wrong tokens at canary 'rivers', and its repetition ") +
                  (silence == Outcome::kNeutral ? "decided nothing" : "was not answered") +
                  ": because");
  }
}

TEST(Repetitions, WrongTokensThatDoNotComeAgainAreAFault) {
  Repetitions repetitions(0);
  EXPECT_EQ(repetitions.add(attempt_of(Outcome::kMismatch)), Next::kSame);
  EXPECT_EQ(repetitions.add(attempt_of(Outcome::kPass)), Next::kDone);
  EXPECT_EQ(repetitions.conclusion().finding, Finding::kFault);
  EXPECT_EQ(repetitions.conclusion().cause.reason,
            "wrong tokens at canary 'rivers', but not at its repetition");
  EXPECT_EQ(repetitions.conclusion().attempt.outcome, Outcome::kMismatch);
}

TEST(Repetitions, TheVoteDecidesOnWrongTokensThatComeAgain) {
  const auto decided = [](Decision decision) {
    Repetitions repetitions(2);
    repetitions.add(attempt_of(Outcome::kMismatch));
    EXPECT_EQ(repetitions.add(attempt_of(Outcome::kMismatch)), Next::kVote);
    repetitions.decide(decision);
    return repetitions.conclusion();
  };
  EXPECT_EQ(decided(Decision::kConviction).finding, Finding::kConviction);
  EXPECT_EQ(decided(Decision::kConviction).cause.evidence->position, 3U);
  EXPECT_EQ(decided(Decision::kStale).finding, Finding::kNeutral);
  EXPECT_EQ(decided(Decision::kUndecided).finding, Finding::kWeak);
  EXPECT_EQ(decided(Decision::kUndecided).cause.reason, "wrong tokens; its set has no majority");
}

}  // namespace
}  // namespace fo::canary
