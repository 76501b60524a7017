#include "metrics/sum_of_samples.h"

#include <gtest/gtest.h>

namespace fo::metrics {
namespace {

TEST(SumOfSamples, AddsTheSeriesOfOneMetric) {
  constexpr std::string_view kText =
      "# TYPE m gauge\nm{a=\"0\"} 2.0\nm{a=\"x} 7 \\\" } 8 \\\\\"}\t3 1700000000000\r\nm_total 9\n"
      "my_m 9\nm\t \t1e1\nm -1";
  EXPECT_EQ(sum_of_samples(kText, "m"), 14);
  EXPECT_EQ(sum_of_samples(kText, "m_total"), 9);
  EXPECT_EQ(sum_of_samples(kText, "total"), std::nullopt);
}

TEST(SumOfSamples, IsOfFiniteNumbersOnly) {
  for (const char* const line : {"", "m", "m ", "m5", "m x", "m NaN", "m nan", "m inf", "m +Inf",
                                 "m -Inf", "m 1e999", "m{}5", "m{", "m{ 5", "m{a=\"} 5"}) {
    EXPECT_EQ(sum_of_samples(line, "m"), std::nullopt) << line;
    EXPECT_EQ(sum_of_samples(std::string(line) + "\nm 1\n", "m"), 1) << line;
  }
}

}  // namespace
}  // namespace fo::metrics
