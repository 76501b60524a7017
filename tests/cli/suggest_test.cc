#include "cli/suggest.h"

#include <gtest/gtest.h>

namespace fo::cli {
namespace {

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
