#include "fleet/card/digest_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "support/environment.h"
#include "support/stderr_text.h"
#include "support/temp_dir.h"
#include "support/text_file.h"

namespace fo::fleet {
namespace {

FileIdentity file_with(std::uint64_t inode) { return {1, inode, 3, 4, 5}; }
std::string hex64(char digit) { return std::string(64, digit); }

class Cache : public testing::Test {
 protected:
  [[nodiscard]] std::string folder() const { return dir_.path("cache"); }
  [[nodiscard]] std::string file() const { return folder() + "/digests.json"; }
  void write_one() const {
    DigestCache cache(folder());
    cache.put(file_with(2), hex64('a'));
    cache.save();
  }
  [[nodiscard]] bool knows_one() const {
    return DigestCache(folder()).find(file_with(2)) == hex64('a');
  }
  test::TempDir dir_;
};

TEST_F(Cache, KeepsDigestsBetweenRuns) {
  EXPECT_FALSE(knows_one());
  write_one();
  EXPECT_TRUE(knows_one());
  struct stat status {};
  ASSERT_EQ(::stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600);
  ASSERT_EQ(::stat(folder().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700);
}

TEST_F(Cache, KnowsAFileByEachPartOfItsIdentity) {
  write_one();
  const DigestCache cache(folder());
  for (const FileIdentity& other :
       {FileIdentity{9, 2, 3, 4, 5}, FileIdentity{1, 9, 3, 4, 5}, FileIdentity{1, 2, 9, 4, 5},
        FileIdentity{1, 2, 3, 9, 5}, FileIdentity{1, 2, 3, 4, 9}}) {
    EXPECT_FALSE(cache.find(other));
  }
}

TEST_F(Cache, ReplacesTheEntryOfTheSameFile) {
  write_one();
  DigestCache cache(folder());
  cache.put({1, 2, 3, 4, 6}, hex64('b'));
  EXPECT_FALSE(cache.find(file_with(2)));
  EXPECT_EQ(cache.find({1, 2, 3, 4, 6}), hex64('b'));
}

TEST_F(Cache, ForgetsTheOldestOfTooMany) {
  DigestCache cache(folder());
  for (std::uint64_t inode = 0; inode < 4097; ++inode) cache.put(file_with(inode), hex64('a'));
  cache.save();
  const DigestCache again(folder());
  EXPECT_FALSE(again.find(file_with(0)));
  EXPECT_TRUE(again.find(file_with(1)));
  EXPECT_TRUE(again.find(file_with(4096)));
}

TEST_F(Cache, IsEmptyIfItIsDamaged) {
  write_one();
  const std::string good = test::slurp(file());
  ASSERT_EQ(good.substr(good.size() - 2), "}\n");
  for (std::size_t size = 0; size < good.size() - 1; ++size) {
    test::spill(file(), good.substr(0, size));
    EXPECT_FALSE(knows_one()) << size;
  }
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& bad :
       {std::string("[]"), good + "x", with("\"version\":1", "\"version\":2"),
        with("\"files\":[", "\"files\":[7,"), with("\"inode\":2", "\"inode\":\"2\""),
        with("\"inode\"", "\"node\""), with(hex64('a'), hex64('A')), with(hex64('a'), "aa"),
        with("{\"device\"", "{\"sha256\":1},{\"device\"")}) {
    test::spill(file(), bad);
    EXPECT_FALSE(knows_one()) << bad;
  }
  test::spill(file(), good);
  EXPECT_TRUE(knows_one());
  // A damaged file is replaced.
  test::spill(file(), "{");
  write_one();
  EXPECT_TRUE(knows_one());
}

TEST_F(Cache, IsEmptyIfOtherUsersCanWriteIt) {
  write_one();
  for (const mode_t mode : {0620U, 0602U}) {
    ASSERT_EQ(::chmod(file().c_str(), mode), 0);
    EXPECT_FALSE(knows_one());
  }
  ASSERT_EQ(::chmod(file().c_str(), 0644), 0);
  EXPECT_TRUE(knows_one());
}

TEST_F(Cache, IsNotReadThroughALink) {
  write_one();
  const std::string other = dir_.path("other.json");
  ASSERT_EQ(::rename(file().c_str(), other.c_str()), 0);
  ASSERT_EQ(::symlink(other.c_str(), file().c_str()), 0);
  EXPECT_FALSE(knows_one());
}

TEST_F(Cache, ThatCannotBeWrittenIsAWarning) {
  test::spill(folder(), "not a folder");
  const test::StderrText log;
  write_one();
  EXPECT_TRUE(log.contains("warning: "));
  EXPECT_TRUE(log.contains(": the files will be read again next time"));
}

TEST(DigestCache, IsNotKeptWithoutAFolder) {
  DigestCache cache("");
  cache.put(file_with(2), hex64('a'));
  EXPECT_EQ(cache.find(file_with(2)), hex64('a'));
  cache.save();
}

TEST(DigestCache, IsInTheFolderForCaches) {
  test::Environment environment;
  environment.set("HOME", "/root");
  environment.set("XDG_CACHE_HOME", "/var/cache");
  EXPECT_EQ(default_cache_folder(), "/var/cache/fo");
  for (const char* ignored : {"", "relative"}) {
    environment.set("XDG_CACHE_HOME", ignored);
    EXPECT_EQ(default_cache_folder(), "/root/.cache/fo");
  }
  environment.unset("XDG_CACHE_HOME");
  environment.unset("HOME");
  EXPECT_EQ(default_cache_folder(), "");
}

}  // namespace
}  // namespace fo::fleet
