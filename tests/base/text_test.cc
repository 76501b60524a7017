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

}  // namespace
}  // namespace fo::base
