#include "plan/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace fo::plan {
namespace {

using testing::ElementsAre;

std::vector<std::string> values(bool is_right) {
  std::vector<std::string> all;
  for (const Figure& figure : figures_of_seed_002()) {
    if (figure.is_right == is_right) all.push_back(figure.value);
  }
  return all;
}

TEST(Figures, ReproduceTheRightOnesToTheDigitsGiven) {
  EXPECT_THAT(values(true),
              ElementsAre("285 h, 11.9 days", "8.2e-05", "6.6e-04", "0.084, 0.82 and 8.2 a day",
                          "5.24 MB, 655360 bytes", "0.007 %", "93.75 %", "51.2, 819 and 3277 ms"));
}

TEST(Figures, CorrectTheWrongOnes) {
  EXPECT_THAT(
      values(false),
      ElementsAre(
          "one every 7.3 to 18.3 days at 5 to 2 % a year", "0.55 to 1.37 a day at 2 to 5 % a year",
          "one in 100 s, in 1,000 GPUs one in 0.1 s; one in 115 days is 1.0e-20 errors per FLOP",
          "0.0117, 0.047, 0.186, 0.746, 2.98 and 5.97 ms",
          "0.374, 1.50, 5.99, 23.97, 95.87 and 191.7 ms",
          "at no length: transfer is 4395 and 137 times faster at every length",
          "63 GB/s in each direction", "671 MB; one token has 320 KiB", "2 a minute",
          "1e-09 drains per check if failures are independent; the article's breaker, which "
          "successes do not reset, opens after 3000 checks",
          "60 to 90 s for a lasting fault; a check meets a fault of 2 ms with a chance of 6.7e-05",
          "60 to 90 s, and the timeouts",
          "replay in 0.41 s for 2,048 tokens, 9.4 s for the last of 23 on one group, 0.8 s over 15",
          "60 s"));
}

TEST(Figures, RightOnesComeFirstAndAllHaveAReason) {
  const std::vector<Figure> all = figures_of_seed_002();
  EXPECT_TRUE(std::is_partitioned(all.begin(), all.end(),
                                  [](const Figure& figure) { return figure.is_right; }));
  for (const Figure& figure : all) {
    EXPECT_FALSE(figure.claim.empty());
    EXPECT_FALSE(figure.reason.empty());
    EXPECT_EQ(figure.value.find("{}"), std::string::npos);
  }
}

}  // namespace
}  // namespace fo::plan
