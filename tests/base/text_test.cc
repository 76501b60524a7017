#include "base/text.h"

#include <gtest/gtest.h>

namespace fo::base {
namespace {

TEST(Text, NumbersAgreeWithTheirNouns) {
  EXPECT_EQ(counted(0, "allocation"), "0 allocations");
  EXPECT_EQ(counted(1, "allocation"), "1 allocation");
  EXPECT_EQ(counted(2, "allocation"), "2 allocations");
  EXPECT_EQ(counted(1, "hash"), "1 hash");
  EXPECT_EQ(counted(2, "hash"), "2 hashes");
  EXPECT_EQ(counted(2, "process"), "2 processes");
}

TEST(Text, LettersOfEitherCaseAreEqualAndOnlyInAscii) {
  EXPECT_TRUE(equal_ignoring_case("Content-Length", "content-LENGTH"));
  EXPECT_TRUE(equal_ignoring_case("", ""));
  EXPECT_FALSE(equal_ignoring_case("chunked", "chunke"));
  EXPECT_FALSE(equal_ignoring_case("chunke", "chunked"));
  EXPECT_FALSE(equal_ignoring_case("@", "`"));
  EXPECT_FALSE(equal_ignoring_case("[", "{"));
  EXPECT_FALSE(equal_ignoring_case("\xc4", "\xe4"));
}

TEST(Text, APeersTextBecomesOneLine) {
  EXPECT_EQ(without_controls("a\x1b[2J\tb\n\x7f"), "a[2Jb");
  EXPECT_EQ(one_line("a\nb\x1b \n"), "a b");
  EXPECT_EQ(one_line("abc", 2), "ab");
  EXPECT_EQ(one_line("\n\n"), "");
}

TEST(Text, OnlyPrintableAsciiWithoutSpacesIsGraphic) {
  EXPECT_TRUE(is_graphic("/a?b=%20~"));
  EXPECT_TRUE(is_graphic(""));
  for (const char* text : {"a b", "a\r\nb", "a\x7f", "\xc3\xa4"}) EXPECT_FALSE(is_graphic(text));
}

}  // namespace
}  // namespace fo::base
