#include "cli/suggest.h"

#include <gtest/gtest.h>

#include "base/edit_distance.h"

namespace fo::cli {
namespace {

using base::edit_distance;

TEST(EditDistance, CountsLettersPutInLeftOutReplacedAndSwapped) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("socket", "socket"), 0u);
  EXPECT_EQ(edit_distance("socket", "sockets"), 1u);
  EXPECT_EQ(edit_distance("socket", "sockt"), 1u);
  EXPECT_EQ(edit_distance("socket", "sacket"), 1u);
  EXPECT_EQ(edit_distance("socket", "sokcet"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(EditDistance, IsTheSameBothWays) {
  for (const char* const one : {"acquire", "status", "", "a", "switchover"}) {
    for (const char* const other : {"owner", "tatsus", "ab", "ba"}) {
      EXPECT_EQ(edit_distance(one, other), edit_distance(other, one)) << one << " " << other;
    }
  }
}

TEST(DidYouMean, NamesTheNearest) {
  EXPECT_EQ(did_you_mean("--sokcet-dir", {"--socket", "--socket-dir", "--device"}),
            "; did you mean '--socket-dir'?");
  EXPECT_EQ(did_you_mean("-json", {"--verbose", "--json"}), "; did you mean '--json'?");
  EXPECT_EQ(did_you_mean("stat", {"status", "start"}), "; did you mean 'start'?");
}

TEST(DidYouMean, IsSilentWhereNothingIsNear) {
  EXPECT_EQ(did_you_mean("--no-such-flag", {"--socket", "--no-failover", "--quiet"}), "");
  EXPECT_EQ(did_you_mean("drop", {"get", "put"}), "");
  EXPECT_EQ(did_you_mean("x", {"--x"}), "");
  EXPECT_EQ(did_you_mean("", {"a"}), "");
  EXPECT_EQ(did_you_mean("---", {"abc"}), "");
  EXPECT_EQ(did_you_mean("abc", {}), "");
  EXPECT_EQ(did_you_mean(std::string(1'000'000, 'a'), {"--all"}), "");
}

}  // namespace
}  // namespace fo::cli
