#include "os/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace fo::os {
namespace {

TEST(Random, UuidsAreVersionFourAndDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string uuid = make_uuid4();
    EXPECT_THAT(uuid, testing::MatchesRegex(
                          "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
    seen.insert(uuid);
  }
  EXPECT_EQ(seen.size(), 100U);
}

TEST(Random, HexHasTwoDigitsForEachByte) {
  EXPECT_THAT(random_hex(16), testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_NE(random_hex(16), random_hex(16));
  EXPECT_EQ(random_hex(0), "");
}

}  // namespace
}  // namespace fo::os
