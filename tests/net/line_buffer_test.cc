#include "net/line_buffer.h"

#include <gtest/gtest.h>

#include "support/failure.h"

namespace fo::net {
namespace {

using base::ExitStatus;
using test::failure_of;

TEST(LineBuffer, GivesWholeLinesHoweverTheyCome) {
  LineBuffer lines(8);
  lines.append("ab\n\ncd");
  EXPECT_EQ(lines.take_line(), "ab");
  EXPECT_EQ(lines.take_line(), "");
  EXPECT_EQ(lines.take_line(), std::nullopt);
  EXPECT_FALSE(lines.empty());
  lines.append("\n");
  EXPECT_EQ(lines.take_line(), "cd");
  EXPECT_TRUE(lines.empty());
}

TEST(LineBuffer, ALineThatIsTooLongIsKnownBeforeItEnds) {
  LineBuffer lines(8);
  lines.append("1234567");
  EXPECT_EQ(lines.take_line(), std::nullopt);
  lines.append("\n");
  EXPECT_EQ(lines.take_line(), "1234567");
  lines.append("12345678");
  EXPECT_EQ(failure_of([&] { lines.take_line(); }).status, ExitStatus::kProtocol);
  LineBuffer whole(8);
  whole.append("12345678\n");
  EXPECT_EQ(failure_of([&] { whole.take_line(); }).status, ExitStatus::kProtocol);
}

}  // namespace
}  // namespace fo::net
