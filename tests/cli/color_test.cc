#include "cli/screen/color.h"

#include <gtest/gtest.h>

namespace fo::cli {
namespace {

TEST(WithoutColors, LeavesStylesAndMovesAlone) {
  for (const char* const text :
       {"", "plain", "\x1b[0m", "\x1b[m", "\x1b[1mbold\x1b[0m", "\x1b[7mreversed\x1b[0m",
        "\x1b[2J\x1b[H", "\x1b[?25l", "\x1b[12;31H", "\x1b[", "\x1b[31", "\x1b[31;"}) {
    EXPECT_EQ(without_colors(text), text);
  }
}

TEST(WithoutColors, TakesColorsAway) {
  EXPECT_EQ(without_colors("a\x1b[31mred\x1b[0m\x1b[39m"), "ared\x1b[0m");
  EXPECT_EQ(without_colors("\x1b[1;31mx"), "\x1b[1mx");
  EXPECT_EQ(without_colors("\x1b[31;1mx"), "\x1b[1mx");
  EXPECT_EQ(without_colors("\x1b[0;97;44;4mx"), "\x1b[0;4mx");
  EXPECT_EQ(without_colors("\x1b[38;5;1mx"), "x");
  EXPECT_EQ(without_colors("\x1b[38;2;1;7;3;1mx\x1b[48;5;7;7my"), "\x1b[1mx\x1b[7my");
  EXPECT_EQ(without_colors("\x1b[38mx\x1b[38;5mx\x1b[48;2;1mx"), "xxx");
}

}  // namespace
}  // namespace fo::cli
