#include "plan/digits.h"

#include <gtest/gtest.h>

#include <limits>

namespace fo::plan {
namespace {

TEST(Digits, RoundsToSignificantDigits) {
  EXPECT_EQ(to_digits(285.156, 3), "285");
  EXPECT_EQ(to_digits(11.88, 3), "11.9");
  EXPECT_EQ(to_digits(0.084147, 2), "0.084");
  EXPECT_EQ(to_digits(-0.0667, 1), "-0.07");
  EXPECT_EQ(to_digits(1, 3), "1.00");
  EXPECT_EQ(to_digits(9.996, 3), "10.0");
}

TEST(Digits, RoundsAHalfAwayFromZero) {
  EXPECT_EQ(to_digits(18.25, 3), "18.3");
  EXPECT_EQ(to_digits(-18.25, 3), "-18.3");
}

TEST(Digits, KeepsTheDigitsOfWholeNumbers) {
  EXPECT_EQ(to_digits(3276.8, 2), "3277");
  EXPECT_EQ(to_digits(655'360, 1), "655360");
}

TEST(Digits, WritesVerySmallAndLargeNumbersWithAnExponent) {
  EXPECT_EQ(to_digits(8.219e-5, 2), "8.2e-05");
  EXPECT_EQ(to_digits(9.99e-5, 2), "1.0e-04");
  EXPECT_EQ(to_digits(1e-9, 1), "1e-09");
  EXPECT_EQ(to_digits(1.5e12, 2), "1.5e+12");
  EXPECT_EQ(to_digits(0, 3), "0");
  EXPECT_EQ(to_digits(std::numeric_limits<double>::infinity(), 3), "inf");
}

}  // namespace
}  // namespace fo::plan
