#include "text/edit_distance.h"

#include <gtest/gtest.h>

namespace fo::text {
namespace {

TEST(EditDistance, CountsLettersPutInLeftOutReplacedAndSwapped) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("socket", "socket"), 0u);
  EXPECT_EQ(edit_distance("socket", "sockets"), 1u);
  EXPECT_EQ(edit_distance("socket", "sockt"), 1u);
  EXPECT_EQ(edit_distance("socket", "sacket"), 1u);
  EXPECT_EQ(edit_distance("socket", "sokcet"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(EditDistance, IsTheSameBothWays) {
  for (const char* const one : {"acquire", "status", "", "a", "switchover"}) {
    for (const char* const other : {"owner", "tatsus", "ab", "ba"}) {
      EXPECT_EQ(edit_distance(one, other), edit_distance(other, one)) << one << " " << other;
    }
  }
}

}  // namespace
}  // namespace fo::text
