#include "plan/failures.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/failure.h"

namespace fo::plan {
namespace {

using test::failure_of;

TEST(Failures, OfTheClusterOfTheSeed) {
  EXPECT_NEAR(time_between_failures(1024, 0.03).count(), 285.156, 0.001);
  EXPECT_NEAR(Days(time_between_failures(1024, 0.03)).count(), 11.882, 0.001);
  EXPECT_NEAR(gpu_failure_chance_per_day(0.03), 8.2192e-5, 1e-9);
  EXPECT_NEAR(group_failure_chance_per_day(8, 0.03), 6.5735e-4, 1e-8);
  EXPECT_NEAR(group_failures_per_day(1024, 8, 0.03), 0.084140, 1e-6);
  EXPECT_NEAR(group_failures_per_day(10'000, 8, 0.03), 0.82168, 1e-5);
  EXPECT_NEAR(group_failures_per_day(100'000, 8, 0.03), 8.2168, 1e-4);
}

TEST(Failures, GroupOfOneFailsAsItsGpu) {
  EXPECT_DOUBLE_EQ(group_failure_chance_per_day(1, 0.5), gpu_failure_chance_per_day(0.5));
}

TEST(Failures, SmallChancesKeepTheirDigits) {
  // 1 - (1 - p)^tp itself would be 0 or full of rounding errors.
  EXPECT_NEAR(group_failure_chance_per_day(8, 1e-13) / (8 * 1e-13 / 365), 1, 1e-12);
}

TEST(Failures, AreMoreFrequentWithMoreGpusLargerGroupsAndHigherRates) {
  for (const double afr : {1e-4, 0.02, 0.1, 0.5}) {
    for (const std::uint64_t gpus : {8u, 100u, 5000u}) {
      EXPECT_GT(time_between_failures(gpus, afr), time_between_failures(gpus + 1, afr));
      EXPECT_GT(time_between_failures(gpus, afr), time_between_failures(gpus, afr * 1.5));
      EXPECT_LT(group_failures_per_day(gpus, 4, afr), group_failures_per_day(gpus, 4, afr * 1.5));
      EXPECT_LE(group_failures_per_day(gpus, 4, afr), group_failures_per_day(gpus + 4, 4, afr));
    }
    double before = 0;
    for (std::uint64_t tp = 1; tp < 100; ++tp) {
      const double chance = group_failure_chance_per_day(tp, afr);
      EXPECT_GT(chance, before);
      EXPECT_LE(chance, static_cast<double>(tp) * afr / 365 * (1 + 1e-12));
      before = chance;
    }
  }
}

TEST(Failures, OnlyWholeGroupsCount) {
  EXPECT_EQ(count_groups(15, 8), 1u);
  EXPECT_EQ(count_groups(16, 8), 2u);
  EXPECT_EQ(failure_of([] { count_groups(7, 8); }).message, "tp '8': expected 1 to 7");
}

TEST(Failures, RefusesRatesOutOfRange) {
  for (const double afr : {0.0, -0.1, 1.1, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(failure_of([&] { time_between_failures(8, afr); }).status, base::ExitStatus::kUsage);
    EXPECT_EQ(failure_of([&] { group_failure_chance_per_day(8, afr); }).status,
              base::ExitStatus::kUsage);
  }
  EXPECT_EQ(failure_of([] { time_between_failures(0, 0.1); }).status, base::ExitStatus::kUsage);
}

TEST(Failures, OfTheTrainingOfLlama3) {
  EXPECT_NEAR(afr_of(kLlama3Run), 0.108, 0.0005);
  EXPECT_DOUBLE_EQ(gpu_days_per_corruption(kLlama3Run), 147'456);
}

}  // namespace
}  // namespace fo::plan
