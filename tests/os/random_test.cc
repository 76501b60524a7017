#include "os/file/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

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

TEST(Random, UnitsAreFromZeroToOneInEachThread) {
  const auto draw = [] {
    std::vector<double> drawn(1000);
    for (double& one : drawn) one = random_unit();
    return drawn;
  };
  std::vector<double> other;
  std::thread([&] { other = draw(); }).join();
  const std::vector<double> drawn = draw();
  EXPECT_NE(drawn, other);
  EXPECT_THAT(drawn, testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(1))));
  const double sum = std::accumulate(drawn.begin(), drawn.end(), 0.0);
  EXPECT_NEAR(sum / 1000, 0.5, 0.1);
}

TEST(Random, HexHasTwoDigitsForEachByte) {
  EXPECT_THAT(random_hex(16), testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_NE(random_hex(16), random_hex(16));
  EXPECT_EQ(random_hex(0), "");
}

}  // namespace
}  // namespace fo::os
