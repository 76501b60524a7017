#include "canary/check/progress.h"

#include <gtest/gtest.h>

#include <chrono>

namespace fo::canary {
namespace {

using std::chrono::seconds;

EngineLoad running_with(double tokens) { return {.running = 1, .tokens = tokens}; }

TEST(ProgressWatch, CountsFromTheLastTokenWhileRequestsRun) {
  ProgressWatch watch;
  EXPECT_EQ(watch.update(running_with(10), seconds(100)).silent, seconds(0));
  EXPECT_EQ(watch.update(running_with(10), seconds(105)).silent, seconds(5));
  EXPECT_EQ(watch.update(running_with(10), seconds(131)).silent, seconds(31));
  EXPECT_EQ(watch.update(running_with(11), seconds(135)).silent, seconds(0));
  EXPECT_EQ(watch.update(running_with(11), seconds(136)).silent, seconds(1));
  // The counters of a new process begin again.
  EXPECT_EQ(watch.update(running_with(0), seconds(140)).silent, seconds(0));
}

TEST(ProgressWatch, ATokenSinceTheLastLookIsAMove) {
  ProgressWatch watch;
  EXPECT_FALSE(watch.update(running_with(10), seconds(100)).has_moved);
  EXPECT_FALSE(watch.update(running_with(10), seconds(105)).has_moved);
  EXPECT_TRUE(watch.update(running_with(11), seconds(110)).has_moved);
  EXPECT_FALSE(watch.update(running_with(11), seconds(115)).has_moved);
  // Another process, whose counters began again.
  EXPECT_FALSE(watch.update(running_with(5), seconds(120)).has_moved);
  const Progress idle = watch.update({.running = 0, .tokens = 20}, seconds(125));
  EXPECT_FALSE(idle.has_moved || idle.is_running);
  EXPECT_FALSE(watch.update(running_with(30), seconds(130)).has_moved);
}

TEST(ProgressWatch, BeginsAgainWhenNothingIsKnownToRun) {
  for (const EngineLoad& idle :
       {EngineLoad{.running = 0, .tokens = 10}, EngineLoad{.tokens = 10}, EngineLoad{.running = 1},
        EngineLoad{.running = -1, .tokens = 10}, EngineLoad{.waiting = 5, .tokens = 10}}) {
    ProgressWatch watch;
    watch.update(running_with(10), seconds(0));
    EXPECT_EQ(watch.update(idle, seconds(30)).silent, seconds(0));
    EXPECT_EQ(watch.update(running_with(10), seconds(40)).silent, seconds(0));
    EXPECT_EQ(watch.update(running_with(10), seconds(41)).silent, seconds(1));
  }
  ProgressWatch watch;
  watch.update(running_with(10), seconds(0));
  watch.reset();
  EXPECT_EQ(watch.update(running_with(10), seconds(30)).silent, seconds(0));
}

}  // namespace
}  // namespace fo::canary
