#include "os/probe.h"

#include <gtest/gtest.h>

namespace fo::os {
namespace {

using namespace std::chrono_literals;
using base::Error;
using base::ExitStatus;

struct Answer {
  bool yes = false;
  int asked = 0;
};

TEST(Probe, IsAskedOnceWithoutAWait) {
  int asked = 0;
  for (const bool yes : {true, false}) {
    const Answer answer = ask_until_yes(0s, [&] { return Answer{yes, ++asked}; });
    EXPECT_EQ(answer.yes, yes);
    EXPECT_EQ(answer.asked, asked);
  }
  EXPECT_EQ(asked, 2);
}

TEST(Probe, IsAskedUntilYes) {
  int asked = 0;
  const Answer answer = ask_until_yes(1h, [&] {
    ++asked;
    return Answer{asked == 3, asked};
  });
  EXPECT_TRUE(answer.yes);
  EXPECT_EQ(answer.asked, 3);
}

TEST(Probe, TheLastAnswerCountsWhenTheTimeIsOver) {
  int asked = 0;
  const Answer answer = ask_until_yes(60ms, [&] { return Answer{false, ++asked}; });
  EXPECT_FALSE(answer.yes);
  EXPECT_EQ(answer.asked, asked);
}

TEST(Probe, WhatThePeerDoesNotAnswerIsANo) {
  for (const ExitStatus status :
       {ExitStatus::kUnavailable, ExitStatus::kTryAgain, ExitStatus::kProtocol}) {
    EXPECT_TRUE(is_no(Error(status, "x")));
  }
  for (const ExitStatus status : {ExitStatus::kUsage, ExitStatus::kBadData, ExitStatus::kSoftware,
                                  ExitStatus::kNotPermitted, ExitStatus::kConfig}) {
    EXPECT_FALSE(is_no(Error(status, "x")));
  }
}

}  // namespace
}  // namespace fo::os
