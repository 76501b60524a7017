#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace fo::base {
namespace {

TEST(Error, SaysWhatAndWhy) {
  try {
    throw_errno(EACCES, "open lock file 'x'");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "open lock file 'x': Permission denied");
    EXPECT_EQ(error.status(), ExitStatus::kNotPermitted);
    EXPECT_EQ(error.code(), std::errc::permission_denied);
  }
}

TEST(Error, StatusOfTheCallerWins) {
  try {
    throw_errno(EACCES, ExitStatus::kCannotCreate, "bind 'x'");
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::kCannotCreate);
  }
}

TEST(Error, WithoutACodeTheMessageIsWhole) {
  const Error error(ExitStatus::kConfig, "read 'x': no");
  EXPECT_STREQ(error.what(), "read 'x': no");
  EXPECT_FALSE(error.code());
}

TEST(StatusOfErrno, FollowsTheTable) {
  EXPECT_EQ(status_of_errno(EPERM), ExitStatus::kNotPermitted);
  EXPECT_EQ(status_of_errno(EROFS), ExitStatus::kNotPermitted);
  EXPECT_EQ(status_of_errno(ENOENT), ExitStatus::kNoInput);
  EXPECT_EQ(status_of_errno(ENOTDIR), ExitStatus::kNoInput);
  EXPECT_EQ(status_of_errno(ENOSPC), ExitStatus::kIoError);
  EXPECT_EQ(status_of_errno(EIO), ExitStatus::kIoError);
  EXPECT_EQ(status_of_errno(EMFILE), ExitStatus::kOsError);
  EXPECT_EQ(status_of_errno(0), ExitStatus::kOsError);
}

TEST(Quoted, ShowsWhatWouldForgeALine) {
  EXPECT_EQ(base::quoted("plain \xc3\xa4"), "'plain \xc3\xa4'");
  EXPECT_EQ(base::quoted(""), "''");
  EXPECT_EQ(base::quoted("a\nb\x7f'\x1b["), "'a\\x0ab\\x7f\\x27\\x1b['");
  EXPECT_EQ(base::quoted(std::string_view("\0", 1)), "'\\x00'");
}

TEST(Quoted, CutsLongText) {
  EXPECT_EQ(base::quoted(std::string(256, 'x')), "'" + std::string(256, 'x') + "'");
  EXPECT_EQ(base::quoted(std::string(257, 'x')), "'" + std::string(256, 'x') + "...'");
}

}  // namespace
}  // namespace fo::base
