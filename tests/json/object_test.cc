#include "json/object.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "support/failure.h"

namespace fo::json {
namespace {

using nlohmann::json;

TEST(JsonObject, WhatIsWrongWithItIsAnError) {
  const auto reason = [](const std::string& text) {
    const test::Failure failure = test::failure_of([&] {
      read_object(
          text, 200, [] { return "read it"; }, [](const json&) { return 0; });
    });
    EXPECT_EQ(failure.status, base::ExitStatus::kProtocol);
    return failure.message;
  };
  EXPECT_EQ(reason(std::string(201, ' ')), "read it: too long");
  EXPECT_EQ(reason(""), "read it: not JSON");
  EXPECT_EQ(reason("{\"a\":\"\xff\"}"), "read it: not JSON");
  EXPECT_EQ(reason("{} {}"), "read it: not JSON");
  EXPECT_EQ(reason(std::string("{}\0", 3)), "read it: a NUL byte");
  EXPECT_EQ(reason(std::string("{}\0{", 4)), "read it: a NUL byte");
  EXPECT_EQ(reason("[]"), "read it: expected an object");
  EXPECT_EQ(reason("{\"a\":" + std::string(80, '[') + std::string(80, ']') + "}"),
            "read it: nested too deep");
}

TEST(JsonObject, MayBeLookedFor) {
  EXPECT_EQ(find_object(R"({"a":1})", 7)->at("a"), 1);
  for (const char* text : {R"({"a":12})", "{", "[]", ""})
    EXPECT_FALSE(find_object(text, 7)) << text;
  EXPECT_EQ(parse("[1]", 3), json::array({1}));
  EXPECT_THROW(parse("[1", 3), Misfit);
}

TEST(JsonObject, NestingHasALimitOutsideOfTexts) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_NO_THROW(parse(nested(kMaxDepth), 1000));
  EXPECT_THROW(parse(nested(kMaxDepth + 1), 1000), TooDeep);
  EXPECT_THROW(parse("[{}," + nested(kMaxDepth) + "]", 1000), TooDeep);
  EXPECT_EQ(parse("[{\"a\":[]}," + nested(kMaxDepth - 1) + "]", 1000).size(), 2U);
  const std::string brackets = std::string(100, '[') + "\\\"" + std::string(100, '{') + "\\\\";
  EXPECT_EQ(parse("[\"" + brackets + "\",[]]", 1000).size(), 2U);
}

TEST(JsonObject, AListOfManyObjectsIsReadOnce) {
  // If the end of each object meant a look at those before it, this would take minutes.
  constexpr std::size_t kObjects = 500'000;
  std::string text = "[{}";
  for (std::size_t i = 1; i < kObjects; ++i) text += ",{}";
  EXPECT_EQ(parse(text + "]", 16 * base::kMiB).size(), kObjects);
}

TEST(JsonObject, NullIsAMissingMember) {
  const json object{{"a", nullptr}, {"b", 1}};
  EXPECT_EQ(find(object, "a"), nullptr);
  EXPECT_EQ(*find(object, "b"), 1);
  EXPECT_EQ(find(json::array({1}), "b"), nullptr);
}

TEST(JsonObject, AMemberMayBeMissingOrNeeded) {
  const json object{{"text", "a"}, {"number", 7U}, {"null", nullptr}};
  EXPECT_EQ(number_in(object, "number"), 7U);
  EXPECT_EQ(needed_number(object, "number"), 7U);
  EXPECT_EQ(needed_text(object, "text"), "a");
  const auto reason = [](const auto& read) -> std::string {
    try {
      read();
      return "";
    } catch (const Misfit& misfit) {
      return misfit.what();
    }
  };
  for (const char* const key : {"null", "none"}) {
    EXPECT_EQ(text_in(object, key), "");
    EXPECT_FALSE(number_in(object, key));
    EXPECT_EQ(reason([&] { needed_text(object, key); }), std::string("missing ") + key);
    EXPECT_EQ(reason([&] { needed_number(object, key); }), std::string("missing ") + key);
  }
  EXPECT_EQ(reason([&] { number_in(object, "text"); }), "text: expected a non-negative integer");
  EXPECT_EQ(reason([&] { number_in(json{{"n", -1}}, "n"); }), "n: expected a non-negative integer");
  EXPECT_EQ(reason([&] { needed_text(object, "number"); }), "number: expected a string");
  EXPECT_EQ(reason([&] { needed_text(json::array(), "x"); }), "expected an object");
}

TEST(JsonObject, OnlyAMisfitIsThePeersFault) {
  const auto what = [] { return "read it"; };
  const auto misfit = [](const json&) -> int { throw Misfit("want less"); };
  EXPECT_EQ(test::failure_of([&] { read_object("{}", 9, what, misfit); }).message,
            "read it: want less");
  const auto misread = [](const json& object) { return object.at("a").get<int>(); };
  for (const base::ExitStatus status : {base::ExitStatus::kProtocol, base::ExitStatus::kBadData}) {
    const auto failure =
        test::failure_of([&] { read_object(R"({"a":"x"})", 9, what, misread, status); });
    EXPECT_EQ(failure.status, status);
    EXPECT_EQ(failure.message, "read it: a member is missing or has another type");
  }
  const auto other = [](const json&) -> int {
    throw base::Error(base::ExitStatus::kConfig, "no id");
  };
  EXPECT_EQ(test::failure_of([&] { read_object("{}", 9, what, other); }).status,
            base::ExitStatus::kConfig);
  EXPECT_EQ(
      read_object("{\"a\":7}", 9, what, [](const json& object) { return object["a"].get<int>(); }),
      7);
}

}  // namespace
}  // namespace fo::json
