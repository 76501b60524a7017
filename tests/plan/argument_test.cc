#include "plan/argument.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/failure.h"

namespace fo::plan {
namespace {

using test::failure_of;

TEST(Argument, RangeIncludesItsBounds) {
  EXPECT_NO_THROW(check_range("x", 1, 1, 2));
  EXPECT_NO_THROW(check_range("x", 2, 1, 2));
  const test::Failure failure = failure_of([] { check_range("x", 2.5, 1, 2); });
  EXPECT_EQ(failure.status, base::ExitStatus::kUsage);
  EXPECT_EQ(failure.message, "x '2.5': expected 1 to 2");
}

TEST(Argument, RefusesWhatIsNoFiniteNumberAboveZero) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {0.0, -1.0, kInfinity, -kInfinity, std::nan(""), 5e-324}) {
    EXPECT_EQ(failure_of([&] { check_positive("x", value, 1e3); }).status, base::ExitStatus::kUsage)
        << value;
  }
  EXPECT_NO_THROW(check_positive("x", 1e3, 1e3));
}

TEST(Argument, CountsBeginAtOne) {
  EXPECT_NO_THROW(check_count("x", 1));
  EXPECT_EQ(failure_of([] { check_count("x", 0); }).message, "x '0': expected 1 to 1000000000000");
  EXPECT_EQ(failure_of([] { check_count("x", 11, 10); }).message, "x '11': expected 1 to 10");
}

}  // namespace
}  // namespace fo::plan
