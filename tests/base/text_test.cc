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

}  // namespace
}  // namespace fo::base
