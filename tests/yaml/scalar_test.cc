#include "yaml/scalar.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace {

using fo::yaml::Node;
using fo::yaml::Quoted;
using fo::yaml::ScalarType;

TEST(ScalarType, IsWhatKubectlTakesItFor) {
  const std::vector<std::pair<ScalarType, std::vector<std::string>>> kTypes = {
      {ScalarType::kNull, {"", "~", "null", "Null", "NULL"}},
      {ScalarType::kBoolean,
       {"y",  "Y",  "n",   "N",   "yes", "Yes",  "YES",  "no",   "No",    "NO",    "on",
        "On", "ON", "off", "Off", "OFF", "true", "True", "TRUE", "false", "False", "FALSE"}},
      {ScalarType::kInteger,
       {"0", "5", "-5", "+1", "0644", "0o644", "0b11", "0x1F", "0X1f", "1_000", "00", "-0x10",
        "18446744073709551615", "-9223372036854775808"}},
      {ScalarType::kFloat,
       {"1e3", ".5", "1.", "1.5", "-.5", "1E-3", ".inf", "-.Inf", "+.INF", ".nan", ".NaN", "08",
        "18446744073709551616", "1_0.5"}},
      {ScalarType::kTimestamp,
       {"2001-12-14", "2001-1-1", "2001-12-14T21:59:43Z", "2001-12-14 21:59:43.10 -5"}},
      {ScalarType::kMerge, {"<<"}},
      {ScalarType::kString,
       {"a",     "nULL", "tRUE",  "12:30:45", "12:30", "0x",  "0b2",   "0o8",      "1e400", "--5",
        "+",     "-",    ".",     "..",       "1.2.3", "=",   "1e",    "e5",       "0x1p4", "._5",
        "1 000", "½",    "infin", "nan",      "_1",    "5Gi", "2001-", "2001-1-1a"}}};
  for (const auto& [type, texts] : kTypes) {
    for (const std::string& text : texts) EXPECT_EQ(fo::yaml::type_of(text), type) << text;
  }
}

TEST(NeedsQuotes, WhatAnyReaderTakesForSomethingElse) {
  for (const char* text :
       {"",         "~",    "null",       "Null",  "NULL", "nULL",   "true",     "False",
        "tRUE",     "y",    "N",          "yes",   "no",   "On",     "off",      "0",
        "-5",       "0644", "0o7",        "0b1",   "0x1F", "0x",     "1_000",    "1e3",
        "1e400",    ".5",   "1.",         "+1",    ".",    ".inf",   "-.INF",    ".NaN",
        "08",       "1e",   "12:30",      "1:2:3", "e5",   "E2",     "-e4",      "+E+4",
        "e1234567", "=",    "2001-12-14", "<<",    "1_",   "-12:30", "12:30:4.5"}) {
    EXPECT_TRUE(fo::yaml::needs_quotes(text)) << text;
  }
}

TEST(NeedsQuotes, WhatCantStandPlain) {
  for (const char* text : {"-",
                           "- a",
                           "---",
                           "--- a",
                           "...",
                           "?",
                           "? a",
                           "?a",
                           ":",
                           ":a",
                           ",",
                           "[",
                           "]",
                           "{",
                           "}",
                           "#",
                           "#a",
                           "&a",
                           "*a",
                           "!a",
                           "|",
                           ">",
                           "'a",
                           "\"a",
                           "%a",
                           "@a",
                           "`a",
                           " a",
                           "a ",
                           "a: b",
                           "a:",
                           "a #b",
                           "a\tb",
                           "a\n",
                           "\n",
                           "a\nb",
                           "\t",
                           "a\rb",
                           "\x01",
                           "\x7f",
                           "\xff",
                           "\xc2\x85",
                           "\xe2\x80\xa8",
                           "\xef\xbb\xbf",
                           "{{ .Values.x }}"}) {
    EXPECT_TRUE(fo::yaml::needs_quotes(text)) << text;
  }
}

TEST(NeedsQuotes, NotWhatIsAStringToAll) {
  for (const char* text : {"a",
                           "nvcr.io/nvidia/vllm:1.0",
                           "--model",
                           "-x",
                           "Qwen/Qwen3-0.6B",
                           "a#b",
                           "a:b",
                           "5Gi",
                           "1.2.3",
                           "a b",
                           "$(VAR)",
                           "${VAR}",
                           "it's",
                           "say \"x\"",
                           "a, b",
                           "ü",
                           "日本語",
                           "😀",
                           "/dev/shm",
                           "nvidia.com/gpu",
                           "yes sir",
                           "null and void",
                           "v1",
                           "100m",
                           "10.0.0.1:80a",
                           "a]",
                           "e",
                           "e-",
                           "e5x",
                           "_"}) {
    EXPECT_FALSE(fo::yaml::needs_quotes(text)) << text;
  }
}

TEST(Scalar, IsAStringWhenQuotedOrNothingElse) {
  EXPECT_EQ(fo::yaml::as_string(Node::string("5")), "5");
  EXPECT_EQ(fo::yaml::as_string(Node::plain("a")), "a");
  EXPECT_EQ(fo::yaml::as_string(Node::plain("2001-12-14")), "2001-12-14");
  EXPECT_EQ(fo::yaml::as_string(Node::plain("12:30")), "12:30");
  EXPECT_EQ(fo::yaml::as_string(Node::plain("5")), std::nullopt);
  EXPECT_EQ(fo::yaml::as_string(Node::plain("on")), std::nullopt);
  EXPECT_EQ(fo::yaml::as_string(Node()), std::nullopt);
  EXPECT_EQ(fo::yaml::as_string(Node::list()), std::nullopt);
}

TEST(Scalar, IsAnIntegerInAnyNotation) {
  const std::vector<std::pair<std::string, std::int64_t>> kIntegers = {
      {"5", 5},
      {"-5", -5},
      {"+5", 5},
      {"0644", 420},
      {"0o644", 420},
      {"0b11", 3},
      {"0x1F", 31},
      {"-0x1", -1},
      {"1e3", 1000},
      {"1_000", 1000},
      {"2.0", 2},
      {"08", 8},
      {"9223372036854775807", std::numeric_limits<std::int64_t>::max()},
      {"-9223372036854775808", std::numeric_limits<std::int64_t>::min()}};
  for (const auto& [text, value] : kIntegers) {
    EXPECT_EQ(fo::yaml::as_integer(Node::plain(text)), value) << text;
    EXPECT_EQ(fo::yaml::as_integer(Node::string(text)), std::nullopt) << text;
  }
  // Quoted numbers are read as Kubernetes reads quantities.
  const std::map<std::string, std::optional<std::int64_t>> kQuoted{{"5", 5},
                                                                   {"+5", 5},
                                                                   {"-5", -5},
                                                                   {"010", 10},
                                                                   {"-010", -10},
                                                                   {"00", 0},
                                                                   {"08", 8},
                                                                   {"1e3", 1000},
                                                                   {"2.0", 2},
                                                                   {"0.5e1", 5},
                                                                   {"0x1F", std::nullopt},
                                                                   {"0o17", std::nullopt},
                                                                   {"0b1", std::nullopt},
                                                                   {"1_000", std::nullopt},
                                                                   {"", std::nullopt}};
  for (const auto& [text, value] : kQuoted) {
    EXPECT_EQ(fo::yaml::as_integer(Node::string(text), Quoted::kYes), value) << text;
  }
  for (const char* text : {"", "a", "1.5", "true", "9223372036854775808", "1e19", "-1e19", ".inf",
                           ".nan", "1e400", "5Gi", "0x", "12:30", "-", "2001-12-14"}) {
    EXPECT_EQ(fo::yaml::as_integer(Node::plain(text)), std::nullopt) << text;
  }
  EXPECT_EQ(fo::yaml::as_integer(Node::map()), std::nullopt);
}

TEST(Scalar, IsABooleanWithoutQuotesOnly) {
  EXPECT_EQ(fo::yaml::as_boolean(Node::plain("on")), true);
  EXPECT_EQ(fo::yaml::as_boolean(Node::plain("N")), false);
  EXPECT_EQ(fo::yaml::as_boolean(Node::string("true")), std::nullopt);
  EXPECT_EQ(fo::yaml::as_boolean(Node::plain("1")), std::nullopt);
}

TEST(Scalar, ReadsAsJson) {
  const std::vector<std::pair<std::string, std::string>> kScalars = {
      {"", "null"},
      {"~", "null"},
      {"on", "true"},
      {"No", "false"},
      {"0644", "420"},
      {"1e3", "1000"},
      {"-0e3", "0"},
      {".5", "0.5"},
      {"1_000", "1000"},
      {"-0", "0"},
      {"1.", "1"},
      {"-1", "-1"},
      {".inf", "\".inf\""},
      {".nan", "\".nan\""},
      {"1e400", "\"1e400\""},
      {"1e-400", "0"},
      {"2001-12-14", "\"2001-12-14\""},
      {"12:30", "\"12:30\""},
      {"<<", "\"<<\""},
      {"18446744073709551615", "18446744073709551615"},
      {"a\"b", R"("a\"b")"}};
  for (const auto& [text, json] : kScalars) {
    EXPECT_EQ(fo::yaml::to_json_scalar(Node::plain(text)), json);
    EXPECT_TRUE(nlohmann::json::accept(json)) << json;
  }
  EXPECT_EQ(fo::yaml::to_json_scalar(Node::string("5")), "\"5\"");
  EXPECT_EQ(fo::yaml::to_json_scalar(Node::string("")), "\"\"");
}

TEST(Scalar, KeysReadAsJsonAsKubectlReadsThem) {
  EXPECT_EQ(fo::yaml::to_json_key({.key = "on", .value = Node(), .plain_key = true}), "\"true\"");
  EXPECT_EQ(fo::yaml::to_json_key({.key = "on", .value = Node()}), "\"on\"");
  EXPECT_EQ(fo::yaml::to_json_key({.key = "0644", .value = Node(), .plain_key = true}), "\"420\"");
  EXPECT_EQ(fo::yaml::to_json_key({.key = ".inf", .value = Node(), .plain_key = true}), "\".inf\"");
  EXPECT_EQ(fo::yaml::to_json_key({.key = "a", .value = Node(), .plain_key = true}), "\"a\"");
}

TEST(DoubleQuoted, IsJsonThatGivesTheTextBack) {
  std::string all;
  for (int c = 0; c < 0x80; ++c) all += static_cast<char>(c);
  all += "ü日\xc2\x85\xe2\x80\xa8\xef\xbb\xbf😀";
  const std::string quoted = fo::yaml::double_quoted(all);
  EXPECT_EQ(nlohmann::json::parse(quoted), all);
  for (const char c : quoted) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  EXPECT_EQ(fo::yaml::double_quoted("a\xff"), "\"a\\ufffd\"");
}

}  // namespace
