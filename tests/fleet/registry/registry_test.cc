#include "fleet/registry/registry.h"

#include <gtest/gtest.h>

#include "json/object.h"

namespace fo::fleet {
namespace {

std::string life_in(const std::string& text, const std::string& key = "cards/a") {
  return checked_life({.key = key, .text = text});
}

TEST(CheckedLife, IsTheLastMemberOfTheObjectItself) {
  EXPECT_EQ(life_in(R"({"b":{"life":"x"},"c":["life"],"life":1,"life":"r\u00e9ady","d":null})"),
            "r\xc3\xa9"
            "ady");
  EXPECT_EQ(life_in(R"({"life":"ready","life":1})"), "");
  EXPECT_EQ(life_in("{}"), "");
}

TEST(CheckedLife, RefusesWhatIsNoJsonObject) {
  const auto nested = [](std::size_t depth) {
    return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_EQ(life_in(nested(fo::json::kMaxDepth - 1)), "");
  for (const std::string& text :
       {std::string(), std::string("text"), std::string("{\"a\":\"\xff\"}"), std::string("{} {}"),
        std::string("{}\0", 3), std::string("[{}]"), std::string("\"a\""), std::string("{\"a\":x}"),
        nested(fo::json::kMaxDepth), std::string(kMaxRecordBytes + 1, ' ')}) {
    EXPECT_THROW(life_in(text), fo::json::Misfit) << text;
  }
}

}  // namespace
}  // namespace fo::fleet
