#include "canary/daemon/turns.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace fo::canary {
namespace {

TEST(Turns, TheLowIdsAreNotFavoured) {
  Turns turns;
  for (const char* const id : {"a", "b", "c"}) turns.add(id);
  EXPECT_EQ(turns.take(), "a");
  // It is due again at once, as one that the registry did not accept.
  turns.add("a");
  EXPECT_EQ(turns.take(), "b");
  turns.add("b");
  EXPECT_EQ(turns.take(), "c");
  EXPECT_EQ(turns.take(), "a");
  EXPECT_EQ(turns.take(), "b");
  EXPECT_TRUE(turns.empty());
}

TEST(Turns, EachIdIsTakenBeforeAnotherIsTakenTwice) {
  std::mt19937 random(1);
  Turns turns;
  // Number of times that others were taken while an id waited.
  std::map<std::string, std::map<std::string, int>> waiting;
  for (int run = 0; run < 10'000; ++run) {
    const std::string added(1, static_cast<char>('a' + random() % 8));
    turns.add(added);
    waiting.try_emplace(added);
    if (random() % 3 == 0) continue;
    const std::string taken = turns.take();
    ASSERT_EQ(waiting.erase(taken), 1U);
    for (auto& [id, others] : waiting) ASSERT_LE(++others[taken], 1) << id << " waited";
  }
}

}  // namespace
}  // namespace fo::canary
