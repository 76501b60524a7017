#include "text/ascii.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace fo::text {
namespace {

using Parts = std::vector<std::string_view>;

TEST(Ascii, TrimmedRemovesBlanksAtBothEndsOnly) {
  EXPECT_EQ(trimmed(" \ta b\r\n"), "a b");
  EXPECT_EQ(trimmed("a"), "a");
  EXPECT_EQ(trimmed(" \r\n"), "");
  EXPECT_EQ(trimmed(""), "");
  EXPECT_EQ(trimmed("\r a \r", " "), "\r a \r");
}

TEST(Ascii, SplitReturnsEmptyPartsToo) {
  EXPECT_EQ(split("a,b", ','), (Parts{"a", "b"}));
  EXPECT_EQ(split(",a,", ','), (Parts{"", "a", ""}));
  EXPECT_EQ(split("a", ','), Parts{"a"});
  EXPECT_EQ(split("", ','), Parts{""});
}

}  // namespace
}  // namespace fo::text
