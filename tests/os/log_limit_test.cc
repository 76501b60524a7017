#include "os/log_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace fo::os::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class LogLimitTest : public testing::Test {
 protected:
  // How many of `count` lines of `peer` are written.
  int written(const std::string& peer, int count) {
    int lines = 0;
    for (int i = 0; i < count; ++i) lines += limit_.admit(peer, now_) ? 1 : 0;
    return lines;
  }

  LogLimit limit_{{{3, seconds(5)}, {10, milliseconds(500)}}};
  LogLimit::Time now_{seconds(1000)};
};

TEST_F(LogLimitTest, EachPeerHasABurstAndThenOneLineNowAndThen) {
  EXPECT_EQ(written("10.0.0.1", 1000), 3);
  EXPECT_EQ(written("10.0.0.2", 1000), 3);
  now_ += milliseconds(4999);
  EXPECT_EQ(written("10.0.0.1", 1000), 0);
  now_ += milliseconds(1);
  EXPECT_EQ(written("10.0.0.1", 1000), 1);
  now_ += std::chrono::hours(1);
  EXPECT_EQ(written("10.0.0.1", 1000), 3);
}

TEST_F(LogLimitTest, AllPeersTogetherHaveABudgetToo) {
  int lines = 0;
  for (int i = 0; i < 100; ++i) lines += written(std::to_string(i), 10);
  EXPECT_EQ(lines, 10);
  now_ += seconds(1);
  EXPECT_EQ(written("one more", 10), 2);
}

TEST_F(LogLimitTest, TheNextLineTellsHowManyWereLeftOut) {
  EXPECT_EQ(limit_.admit("a", now_), 0U);
  written("a", 12);
  EXPECT_EQ(limit_.admit("b", now_), 0U);
  now_ += seconds(5);
  EXPECT_EQ(limit_.admit("a", now_), 10U);
  EXPECT_EQ(limit_.admit("a", now_ + seconds(5)), 0U);
}

TEST_F(LogLimitTest, WhatTheBudgetOfAllLeftOutIsToldByWhoeverIsNext) {
  for (int i = 0; i < 14; ++i) written(std::to_string(i), 1);
  now_ += seconds(1);
  EXPECT_EQ(limit_.admit("next", now_), 4U);
}

TEST_F(LogLimitTest, PeersWithoutEndShareABudgetAndNothingIsForgotten) {
  LogLimit limit({{1, seconds(5)}, {1'000'000, milliseconds(1)}});
  std::uint64_t lines = 0;
  for (int i = 0; i < 1000; ++i) lines += limit.admit(std::to_string(i), now_) ? 1U : 0U;
  EXPECT_EQ(lines, LogLimit::kMaxPeers + 1);
  // Peers that were quiet long enough are forgotten.
  now_ += seconds(5);
  EXPECT_TRUE(limit.admit("1000", now_));
  EXPECT_TRUE(limit.admit("1001", now_));
}

TEST_F(LogLimitTest, SaysItOnStandardError) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 20; ++i) limit_.log(LogLevel::kWarning, "a", "refused", now_);
  limit_.log(LogLevel::kWarning, "a", "refused again", now_ + seconds(5));
  limit_.log(LogLevel::kInfo, "b", "nobody wants to know", now_);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "fo: warning: refused\nfo: warning: refused\nfo: warning: refused\n"
            "fo: warning: refused again\nfo: warning: 17 messages like this were suppressed\n");
}

}  // namespace
}  // namespace fo::os::test
