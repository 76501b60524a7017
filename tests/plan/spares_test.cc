#include "plan/spares.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <queue>
#include <random>
#include <vector>

#include "support/failure.h"

namespace fo::plan {
namespace {

using test::failure_of;

TEST(Spares, MeanOfTheClusterOfTheSeed) {
  // 128 groups of 8 fail 30.72 times a year; each is away for 72 of 8,760 hours.
  EXPECT_NEAR(mean_groups_down(128, 8, 0.03, Hours(72)), 30.72 * 72 / 8760, 1e-12);
}

TEST(Spares, TailOfKnownDistributions) {
  EXPECT_NEAR(poisson_tail(1, 0), 1 - std::exp(-1), 1e-15);
  EXPECT_NEAR(poisson_tail(1, 1), 1 - 2 * std::exp(-1), 1e-15);
  EXPECT_NEAR(poisson_tail(5, 5), 0.384039345166937, 1e-12);
  // Chances far below the resolution of 1 - P(X <= k).
  EXPECT_NEAR(poisson_tail(1e-6, 3) / (1e-24 / 24), 1, 1e-5);
  EXPECT_NEAR(poisson_tail(1e6, 1'000'000), 0.5, 1e-3);
}

TEST(Spares, TailFallsWithSparesAndRisesWithTheMean) {
  for (const double mean : {0.01, 0.5, 3.0, 40.0, 1000.0}) {
    for (std::uint64_t k = 0; k < 60; ++k) {
      EXPECT_GE(poisson_tail(mean, k), poisson_tail(mean, k + 1));
      EXPECT_LE(poisson_tail(mean, k), poisson_tail(mean * 1.1, k) + 1e-12);
      EXPECT_GE(poisson_tail(mean, k), 0);
      EXPECT_LE(poisson_tail(mean, k), 1);
    }
  }
}

TEST(Spares, NeededIsTheLeastNumberWithinTheShortfall) {
  for (const double mean : {1e-6, 0.2525, 1.0, 7.5, 333.0, 1e5}) {
    for (const double shortfall : {0.5, 0.01, 1e-6, 1e-12, 1e-200}) {
      const std::uint64_t spares = spares_needed(mean, shortfall);
      EXPECT_LE(poisson_tail(mean, spares), shortfall);
      if (spares > 0) {
        EXPECT_GT(poisson_tail(mean, spares - 1), shortfall);
      }
    }
  }
  EXPECT_EQ(spares_needed(0.001, 0.01), 0u);
  EXPECT_EQ(spares_needed(0.2525, 0.01), 2u);
}

TEST(Spares, RefusesArgumentsOutOfRange) {
  EXPECT_EQ(failure_of([] { spares_needed(1, 0); }).status, base::ExitStatus::kUsage);
  EXPECT_EQ(failure_of([] { spares_needed(1, 1); }).status, base::ExitStatus::kUsage);
  EXPECT_EQ(failure_of([] { spares_needed(std::nan(""), 0.1); }).status, base::ExitStatus::kUsage);
  EXPECT_EQ(failure_of([] { mean_groups_down(1, 8, 0.03, Hours(0)); }).status,
            base::ExitStatus::kUsage);
  EXPECT_EQ(failure_of([] { mean_groups_down(1'000'000'000, 1000, 1, Hours(8760)); }).message,
            "mean number of groups down '1000000000000': expected 1e-15 to 1000000");
}

// The parts of the time in which 0, 1, 2 … groups were down, of 100 groups that are always
// replaced. Failures come one by one at random times; each repair has a time of its own.
std::vector<double> simulate(double failures_per_hour, const std::function<double()>& repair_hours,
                             std::mt19937_64& random) {
  std::exponential_distribution<double> gap(failures_per_hour);
  std::priority_queue<double, std::vector<double>, std::greater<>> repaired;
  std::vector<double> hours(1000, 0.0);
  double now = 0;
  const auto advance = [&](double to) {
    hours.at(repaired.size()) += to - now;
    now = to;
  };
  for (int failures = 0; failures < 400'000; ++failures) {
    const double failure = now + gap(random);
    while (!repaired.empty() && repaired.top() <= failure) {
      advance(repaired.top());
      repaired.pop();
    }
    advance(failure);
    repaired.push(now + repair_hours());
  }
  for (double& one : hours) one /= now;
  return hours;
}

// The formula depends on the mean of the repair times, not on their distribution.
TEST(Spares, TailIsThatOfASimulation) {
  constexpr double kRepairHours = 72;
  std::mt19937_64 random(20260101);
  std::exponential_distribution<double> exponential(1 / kRepairHours);
  std::uniform_real_distribution<double> uniform(0, 2 * kRepairHours);
  const std::vector<std::function<double()>> repairs{[&] { return exponential(random); },
                                                     [&] { return uniform(random); },
                                                     [&] { return kRepairHours; }};
  for (const std::uint64_t groups : {100u, 2000u}) {
    const double mean = mean_groups_down(groups, 8, 0.09, Hours(kRepairHours));
    for (const auto& repair : repairs) {
      const std::vector<double> parts = simulate(mean / kRepairHours, repair, random);
      double tail = 1;
      for (std::uint64_t k = 0; k < 30; ++k) {
        tail -= parts[k];
        const double expected = poisson_tail(mean, k);
        // At the smallest chances, few of the simulated failures count.
        if (expected < 1e-3) break;
        EXPECT_NEAR(tail / expected, 1, 0.15) << "mean " << mean << ", more than " << k;
      }
    }
  }
}

}  // namespace
}  // namespace fo::plan
