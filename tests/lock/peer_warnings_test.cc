#include "lock/peer_warnings.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fo::lock {
namespace {

std::ptrdiff_t lines_in(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

TEST(PeerWarnings, ComeOnceForEachAddress) {
  PeerWarnings warnings;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 100; ++i) warnings.warn("10.0.0.1", "refused");
  warnings.warn("10.0.0.2", "refused too");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines_in(said), 2) << said;
  EXPECT_NE(said.find("refused too"), std::string::npos);
}

TEST(PeerWarnings, AddressesWithoutEndShareOne) {
  PeerWarnings warnings;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 1000; ++i) warnings.warn(std::to_string(i), "refused");
  EXPECT_LT(lines_in(testing::internal::GetCapturedStderr()), 500);
}

}  // namespace
}  // namespace fo::lock
