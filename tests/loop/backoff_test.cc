#include "loop/backoff.h"

#include <gtest/gtest.h>

#include <set>

namespace fo::loop {
namespace {

using namespace std::chrono_literals;

TEST(Backoff, PausesDoubleUpToTheLongest) {
  for (int i = 0; i < 100; ++i) {
    Backoff backoff(50ms, 300ms);
    for (const base::Duration all : {50ms, 100ms, 200ms, 300ms, 300ms, 300ms}) {
      const base::Duration pause = backoff.next();
      EXPECT_GE(pause, all / 2);
      EXPECT_LE(pause, all);
    }
    backoff.reset();
    EXPECT_LE(backoff.next(), 50ms);
  }
}

TEST(Backoff, PausesDifferForEverybody) {
  std::set<base::Duration> pauses;
  for (int i = 0; i < 8; ++i) pauses.insert(Backoff(1h, 1h).next());
  EXPECT_GT(pauses.size(), 1U);
}

TEST(Backoff, NeverGrowsOutOfItsNumbers) {
  Backoff backoff(1h, 24h);
  for (int i = 0; i < 200; ++i) backoff.next();
  EXPECT_LE(backoff.next(), 24h);
  EXPECT_GE(backoff.next(), 12h);
}

TEST(IsTransient, WhatIsDownBusyOrLate) {
  using base::Error;
  using base::ExitStatus;
  EXPECT_TRUE(is_transient(Error(ExitStatus::kUnavailable, "x")));
  EXPECT_TRUE(is_transient(Error(ExitStatus::kTryAgain, "x")));
  for (const ExitStatus status : {ExitStatus::kProtocol, ExitStatus::kNotPermitted,
                                  ExitStatus::kConfig, ExitStatus::kNoInput}) {
    EXPECT_FALSE(is_transient(Error(status, "x")));
  }
}

}  // namespace
}  // namespace fo::loop
