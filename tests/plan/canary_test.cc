#include "plan/canary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "support/failure.h"

namespace fo::plan {
namespace {

using test::failure_of;

constexpr CanaryChecks kSeed{.interval = Seconds(30), .false_result = 0.001, .in_a_row = 3};

TEST(Canary, OfTheSeed) {
  EXPECT_DOUBLE_EQ(checks_per_day(Seconds(30)), 2880);
  EXPECT_NEAR(false_drains_per_day(kSeed), 2880e-9, 1e-18);
  EXPECT_NEAR(false_drains_per_day(kSeed, 1000), 2880e-6, 1e-15);
  EXPECT_DOUBLE_EQ(checks_until_unreset_breaker_opens(kSeed), 3000);
  EXPECT_DOUBLE_EQ(longest_drift_detection(kSeed).count(), 92);
  EXPECT_DOUBLE_EQ(longest_mismatch_detection(Seconds(30), Seconds(1.5)).count(), 33.5);
  EXPECT_NEAR(chance_to_see(Seconds(0.002), Seconds(30)), 6.667e-5, 1e-8);
}

TEST(Canary, AFaultLongerThanTheIntervalIsAlwaysSeen) {
  EXPECT_EQ(chance_to_see(Seconds(30), Seconds(30)), 1);
  EXPECT_EQ(chance_to_see(Seconds(31), Seconds(30)), 1);
  EXPECT_EQ(chance_to_see(Seconds(0), Seconds(30)), 0);
}

TEST(Canary, QuestionsCostTokensAndTime) {
  constexpr CanaryQuestion kQuestion{.prompt = 484, .answer = 16};
  EXPECT_DOUBLE_EQ(question_tokens_per_minute(Seconds(30), kQuestion), 1250);
  EXPECT_DOUBLE_EQ(question_tokens_per_minute(Seconds(60), kQuestion), 625);
  const Seconds time = question_time(kQuestion, 4840, Seconds(0.025));
  EXPECT_DOUBLE_EQ(time.count(), 0.5);
  EXPECT_DOUBLE_EQ(share_of_questions(Seconds(25), time), 0.025);
  EXPECT_GT(share_of_questions(Seconds(0.1), time), 1);
}

TEST(Canary, MoreFailuresInARowMeanFewerFalseDrainsAndLaterDetection) {
  for (const double p : {0.001, 0.1, 0.9}) {
    for (std::uint64_t k = 1; k < 10; ++k) {
      const CanaryChecks fewer{Seconds(30), p, k};
      const CanaryChecks more{Seconds(30), p, k + 1};
      EXPECT_GT(false_drains_per_day(fewer), false_drains_per_day(more));
      EXPECT_LT(longest_drift_detection(fewer), longest_drift_detection(more));
      EXPECT_GT(false_drains_per_day(fewer), false_drains_per_day({Seconds(60), p, k}));
    }
  }
  EXPECT_EQ(false_drains_per_day({Seconds(30), 0, 3}), 0);
}

// Each check after which the last k all failed counts as a drain, as in the formula.
TEST(Canary, FalseDrainsAreThoseOfASimulation) {
  constexpr int kDays = 200;
  const CanaryChecks checks{Seconds(30), 0.05, 2};
  std::mt19937_64 random(7);
  std::bernoulli_distribution fails(checks.false_result);
  int drains = 0;
  std::uint64_t failed = 0;
  for (int i = 0; i < kDays * 2880; ++i) {
    failed = fails(random) ? failed + 1 : 0;
    if (failed >= checks.in_a_row) ++drains;
  }
  const double expected = false_drains_per_day(checks) * kDays;
  EXPECT_NEAR(drains, expected, 5 * std::sqrt(expected));
}

TEST(Canary, RefusesArgumentsOutOfRange) {
  const std::vector<std::function<void()>> wrong{
      [] { checks_per_day(Seconds(0)); },
      [] { checks_per_day(Seconds(86'401)); },
      [] {
        false_drains_per_day({Seconds(30), 1.1, 3});
      },
      [] {
        false_drains_per_day({Seconds(30), 0.1, 0});
      },
      [] { false_drains_per_day(kSeed, 0); },
      [] {
        checks_until_unreset_breaker_opens({Seconds(30), 0, 3});
      },
      [] { longest_mismatch_detection(Seconds(30), Seconds(-1)); },
      [] { chance_to_see(Seconds(std::nan("")), Seconds(30)); },
      [] { chance_to_see(Seconds(1), Seconds(0)); },
      [] {
        question_tokens_per_minute(Seconds(0), {1, 1});
      },
      [] {
        question_tokens_per_minute(Seconds(30), {0, 1});
      },
      [] {
        question_time({1, 0}, 1, Seconds(1));
      },
      [] {
        question_time({1, 1}, 0, Seconds(1));
      },
      [] { share_of_questions(Seconds(0), Seconds(1)); }};
  for (const auto& call : wrong) {
    EXPECT_EQ(failure_of(call).status, base::ExitStatus::kUsage) << &call - wrong.data();
  }
}

}  // namespace
}  // namespace fo::plan
