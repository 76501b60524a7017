#include "os/probe.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace fo::os {
namespace {

using namespace std::chrono_literals;
using base::Error;
using base::ExitStatus;

struct Answer {
  bool yes = false;
  int asked = 0;
  std::string reason;
};

struct Question {
  base::Duration wait;
  std::function<void(Answer&)> ask;
};

void ask_once(const Question& question, Answer& answer) { question.ask(answer); }

TEST(Probe, IsAskedOnceWithoutAWait) {
  int asked = 0;
  for (const bool yes : {true, false}) {
    const Question question{0s, [&](Answer& one) { one = {yes, ++asked, {}}; }};
    const Answer answer = ask_until_yes(question, ask_once);
    EXPECT_EQ(answer.yes, yes);
    EXPECT_EQ(answer.asked, asked);
  }
  EXPECT_EQ(asked, 2);
}

TEST(Probe, IsAskedUntilYes) {
  int asked = 0;
  const Question question{1h, [&](Answer& one) {
                            ++asked;
                            one = {asked == 3, asked, {}};
                          }};
  const Answer answer = ask_until_yes(question, ask_once);
  EXPECT_TRUE(answer.yes);
  EXPECT_EQ(answer.asked, 3);
}

TEST(Probe, TheLastAnswerCountsWhenTheTimeIsOver) {
  int asked = 0;
  const Question question{60ms, [&](Answer& one) { one.asked = ++asked; }};
  const Answer answer = ask_until_yes(question, ask_once);
  EXPECT_FALSE(answer.yes);
  EXPECT_EQ(answer.asked, asked);
}

TEST(Probe, WhatThePeerDoesNotAnswerIsANo) {
  const auto fail = [](ExitStatus status) {
    const Question question{0s, [&](Answer&) { throw Error(status, "x"); }};
    return ask_until_yes(question, ask_once);
  };
  for (const ExitStatus status :
       {ExitStatus::kUnavailable, ExitStatus::kTryAgain, ExitStatus::kProtocol}) {
    EXPECT_FALSE(fail(status).yes);
    EXPECT_EQ(fail(status).reason, "x");
  }
  for (const ExitStatus status : {ExitStatus::kUsage, ExitStatus::kBadData, ExitStatus::kSoftware,
                                  ExitStatus::kNotPermitted, ExitStatus::kConfig}) {
    EXPECT_THROW(fail(status), Error);
  }
}

}  // namespace
}  // namespace fo::os
