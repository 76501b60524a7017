#include "json/probe_result.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fo::json {
namespace {

TEST(ProbeResult, OnlyNoHasAReason) {
  EXPECT_EQ(probe_result(true, "", {}), R"({"result":"yes"})");
  EXPECT_EQ(probe_result(true, "an earlier attempt failed", {{"free", 1}}),
            R"({"free":1,"result":"yes"})");
  EXPECT_EQ(probe_result(false, "lock '/x': held", {}),
            R"({"reason":"lock '/x': held","result":"no"})");
}

}  // namespace
}  // namespace fo::json
