#include "json/option.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace fo::json {
namespace {

TEST(JsonOption, ReadsObjectsInTheirOrder) {
  const auto object = read_json_object(R"( {"b": 1, "a": {"c": [true, null]}} )");
  ASSERT_TRUE(object);
  EXPECT_EQ(object->dump(), R"({"b":1,"a":{"c":[true,null]}})");
}

TEST(JsonOption, TakesNothingElse) {
  for (const char* const text : {"", "{", "[1]", "1", "\"x\"", "null", "{} {}", "{'a': 1}"}) {
    EXPECT_FALSE(read_json_object(text)) << text;
  }
}

TEST(JsonOption, TakesNothingThatIsNotSafeToWriteAgain) {
  const auto nested = [](int levels) {
    std::string text = "{\"a\":";
    for (int i = 1; i < levels; ++i) text += '[';
    for (int i = 1; i < levels; ++i) text += ']';
    return levels > 1 ? text + "}" : "{}";
  };
  EXPECT_TRUE(read_json_object(nested(256)));
  EXPECT_FALSE(is_too_much_json(nested(256)));
  EXPECT_FALSE(read_json_object(nested(257)));
  EXPECT_TRUE(is_too_much_json(nested(257)));
  const std::string long_value = R"({"a":")" + std::string(8192 - 8, 'x') + "\"}";
  EXPECT_EQ(long_value.size(), 8192U);
  EXPECT_TRUE(read_json_object(long_value));
  EXPECT_FALSE(read_json_object(long_value + " "));
}

}  // namespace
}  // namespace fo::json
