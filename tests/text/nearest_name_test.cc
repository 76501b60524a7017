#include "text/nearest_name.h"

#include <gtest/gtest.h>

#include <string>

namespace fo::text {
namespace {

TEST(NearestName, IsTheFewestChangesAway) {
  EXPECT_EQ(nearest_name("livenesProbe", {"livenessProbe", "readinessProbe"}), "livenessProbe");
  EXPECT_EQ(nearest_name("comandn", {"args", "command"}), "command");
  EXPECT_EQ(nearest_name("iamge", {"name", "image"}), "image");
  EXPECT_EQ(nearest_name("envs", {"env", "envFrom"}), "env");
  EXPECT_EQ(nearest_name("stat", {"status", "start"}), "start");
  // Letters that are put in, left out, replaced and swapped; three of six are too many.
  for (const char* const one : {"sockets", "sockt", "sacket", "sokcet", "sacked"}) {
    EXPECT_EQ(nearest_name(one, {"socket"}), "socket") << one;
    EXPECT_EQ(nearest_name("socket", {one}), one);
  }
  EXPECT_EQ(nearest_name("sitting", {"kitten"}), std::nullopt);
}

TEST(NearestName, LeadingDashesCountNothing) {
  EXPECT_EQ(nearest_name("-json", {"--verbose", "--json"}), "--json");
}

TEST(NearestName, CaseCountsNothing) {
  EXPECT_EQ(nearest_name("LIVENESSPROBE", {"livenessProbe"}), "livenessProbe");
}

TEST(NearestName, IsNoneWhenAllAreFar) {
  EXPECT_EQ(nearest_name("sidecars", {"image", "command"}), std::nullopt);
  EXPECT_EQ(nearest_name("x", {"command"}), std::nullopt);
  EXPECT_EQ(nearest_name("x", {"--x"}), std::nullopt);
  EXPECT_EQ(nearest_name("", {"command"}), std::nullopt);
  EXPECT_EQ(nearest_name("---", {"abc"}), std::nullopt);
  EXPECT_EQ(nearest_name("image", {}), std::nullopt);
  EXPECT_EQ(did_you_mean("drop", {"get", "put"}), "");
  EXPECT_EQ(did_you_mean("sokcet", {"socket"}), "; did you mean 'socket'?");
}

TEST(NearestName, LooksAtNothingLong) {
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'a'), {"aaaa"}), std::nullopt);
  EXPECT_EQ(nearest_name("aaaa", {std::string(1 << 20, 'a')}), std::nullopt);
}

}  // namespace
}  // namespace fo::text
