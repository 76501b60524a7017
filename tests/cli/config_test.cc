#include "cli/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "support.h"
#include "support/temp_dir.h"

namespace fo::cli::test {
namespace {

using base::ExitStatus;
using testing::EndsWith;
using testing::StartsWith;

class Config : public testing::Test {
 protected:
  std::vector<ConfigSetting> read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_config(path_);
  }
  std::string one(const std::string& text) { return read("key = " + text).at(0).value; }
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
  EXPECT_EQ(one("[]"), "");
  EXPECT_EQ(one("[\"a\", 1, false]"), "a,1,false");
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
      EndsWith("line 2, column 7: key 'key': want a string, number, boolean or a list of them"));
  for (const char* text :
       {"[table]\na = 1", "a = 2026-01-01", "a = 12:00:00", "a = [[1]]", "a.b = 1"}) {
    EXPECT_EQ(refused(text).status, ExitStatus::kConfig) << text;
  }
}

TEST_F(Config, HostileFilesAreRefused) {
  EXPECT_EQ(refused("a = " + std::string(100'000, '[')).status, ExitStatus::kConfig);
  EXPECT_EQ(refused("# " + std::string(2 << 20, 'x')).status, ExitStatus::kBadData);
}

TEST_F(Config, AMissingFileIsNoInput) {
  EXPECT_EQ(failure_of([&] { read_config(folder_.path("none")); }).status, ExitStatus::kNoInput);
}

}  // namespace
}  // namespace fo::cli::test
