#include "cli/screen/progress.h"

#include <gtest/gtest.h>

namespace fo::cli {
namespace {

using base::kGiB;
using base::kMiB;
using std::chrono::seconds;

TEST(ProgressLine, ShowsBarPartAmountAndRate) {
  EXPECT_EQ(progress_line(512 * kMiB, 2 * kGiB, seconds(2), 60),
            "[######..................]  25%  512 MiB of 2 GiB  256 MiB/s");
  EXPECT_EQ(progress_line(0, kGiB, seconds(0), 40), "[............]   0%  0 B of 1 GiB  0 B/s");
}

TEST(ProgressLine, IsNeverWiderThanTheTerminal) {
  for (std::size_t columns = 0; columns < 200; ++columns) {
    EXPECT_LE(progress_line(kGiB, 3 * kGiB, seconds(1), columns).size(), columns);
  }
}

TEST(ProgressLine, IsFullWhenThereIsNothingToDoOrTooMuchWasDone) {
  EXPECT_NE(progress_line(0, 0, seconds(1), 80).find("100%"), std::string::npos);
  EXPECT_NE(progress_line(3, 2, seconds(1), 80).find("100%"), std::string::npos);
}

}  // namespace
}  // namespace fo::cli
