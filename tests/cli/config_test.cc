#include "cli/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "support.h"
#include "support/temp_dir.h"

namespace fo::cli::test {
namespace {

using base::ExitStatus;
using testing::ElementsAre;
using testing::EndsWith;
using testing::IsEmpty;
using testing::StartsWith;

class Config : public testing::Test {
 protected:
  std::vector<ConfigSetting> read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_config(path_);
  }
  std::vector<std::string> all(const std::string& text) {
    return read("key = " + text).at(0).values;
  }
  std::string one(const std::string& text) { return all(text).at(0); }
  Failure refused(const std::string& text) {
    return failure_of([&] { read(text); });
  }
  fo::test::TempDir folder_;
  std::string path_ = folder_.path("c.toml");
};

TEST_F(Config, ValuesReadAsOnTheCommandLine) {
  EXPECT_EQ(one("\"a b\""), "a b");
  EXPECT_EQ(one("17"), "17");
  EXPECT_EQ(one("-17"), "-17");
  EXPECT_EQ(one("1.5"), "1.5");
  EXPECT_EQ(one("true"), "true");
  EXPECT_THAT(all("[]"), IsEmpty());
  EXPECT_THAT(all("[\"a,b\", 1, false]"), ElementsAre("a,b", "1", "false"));
  EXPECT_EQ(one("9223372036854775807"), "9223372036854775807");
}

TEST_F(Config, AnEmptyFileSetsNothing) {
  EXPECT_TRUE(read("").empty());
  EXPECT_TRUE(read("# nothing\n").empty());
}

TEST_F(Config, WhatIsNotTomlIsRefusedWithLineAndColumn) {
  const Failure failure = refused("a = 1\nb = = 2\n");
  EXPECT_EQ(failure.status, ExitStatus::kConfig);
  EXPECT_THAT(failure.message,
              StartsWith("read configuration '" + path_ + "': line 2, column 5: "));
  for (const char* text :
       {"a = 1\na = 2", "a", "= 1", "a = \"", "a = [1", "\xff = 1", "a = 1 b = 2"}) {
    EXPECT_EQ(refused(text).status, ExitStatus::kConfig) << text;
  }
}

TEST_F(Config, WhatNoOptionTakesIsRefused) {
  const Failure failure = refused("ok = 1\nkey = { a = 1 }\n");
  EXPECT_EQ(failure.status, ExitStatus::kConfig);
  EXPECT_THAT(
      failure.message,
      EndsWith(
          "line 2, column 7: key 'key': expected a string, number, boolean or a list of them"));
  for (const char* text :
       {"[table]\na = 1", "a = 2026-01-01", "a = 12:00:00", "a = [[1]]", "a.b = 1"}) {
    EXPECT_EQ(refused(text).status, ExitStatus::kConfig) << text;
  }
}

TEST_F(Config, HostileFilesAreRefused) {
  EXPECT_EQ(refused("a = " + std::string(100'000, '[')).status, ExitStatus::kConfig);
  EXPECT_EQ(refused("# " + std::string(2 << 20, 'x')).status, ExitStatus::kBadData);
}

TEST_F(Config, NumbersKeepTheirDigits) {
  EXPECT_EQ(one("0.0123456789012345"), "0.0123456789012345");
  EXPECT_EQ(read("{\"key\": 0.0123456789012345}").at(0).values.at(0), "0.0123456789012345");
}

TEST_F(Config, ReadsJson) {
  const auto settings =
      read("\n {\"a\": \"x y\", \"b\": [1, true, \"z\"], \"c\": -1.5, \"d\": []}\n");
  ASSERT_EQ(settings.size(), 4u);
  EXPECT_EQ(settings[0].option, "a");
  EXPECT_THAT(settings[0].values, ElementsAre("x y"));
  EXPECT_THAT(settings[1].values, ElementsAre("1", "true", "z"));
  EXPECT_THAT(settings[2].values, ElementsAre("-1.5"));
  EXPECT_THAT(settings[3].values, IsEmpty());
}

TEST_F(Config, JsonThatNoOptionTakesIsRefused) {
  const std::string start = "read configuration '" + path_ + "': ";
  EXPECT_EQ(refused("{\"a\": 1").message, start + "not JSON");
  for (const char* const text : {"{\"a\": null}", "{\"a\": {}}", "{\"a\": [[1]]}"}) {
    EXPECT_EQ(refused(text).message,
              start + "key 'a': expected a string, number, boolean or a list of them");
  }
  EXPECT_EQ(refused("{\"a\": " + std::string(100'000, '[')).status, ExitStatus::kConfig);
}

TEST_F(Config, StringsAreWrittenAsTheyAreRead) {
  for (const std::string text :
       {"", "a b", "\"quoted\"", "C:\\n", "tab\tline\nend\x7f\x1b", "ä€😀", "a = 1 # no comment"}) {
    EXPECT_EQ(one(toml_string(text).value()), text);
  }
  for (const char* const text : {"\xff", "a\xc3", "\xed\xa0\x80"}) {
    EXPECT_EQ(toml_string(text), std::nullopt);
  }
}

TEST_F(Config, AMissingFileIsNoInput) {
  EXPECT_EQ(failure_of([&] { read_config(folder_.path("none")); }).status, ExitStatus::kNoInput);
}

}  // namespace
}  // namespace fo::cli::test
