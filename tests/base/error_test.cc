#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "support/failure.h"

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
  EXPECT_EQ(test::status_of([] { throw_errno(EACCES, ExitStatus::kCannotCreate, "bind 'x'"); }),
            ExitStatus::kCannotCreate);
}

TEST(Error, WhatCannotBeCreatedIsNotPermittedWhereThatIsWhy) {
  for (const int err : {EACCES, EPERM, EROFS}) {
    EXPECT_EQ(test::status_of([&] { throw_cannot_create(err, "make 'x'"); }),
              ExitStatus::kNotPermitted);
  }
  EXPECT_EQ(test::status_of([] { throw_cannot_create(ENOSPC, "make 'x'"); }),
            ExitStatus::kCannotCreate);
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
  EXPECT_EQ(status_of_errno(ELOOP), ExitStatus::kNoInput);
  EXPECT_EQ(status_of_errno(ENAMETOOLONG), ExitStatus::kNoInput);
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

TEST(Quoted, ShowsTheOtherControlCharactersOfATerminal) {
  // U+009B starts an escape sequence, as ESC and [ do.
  EXPECT_EQ(base::quoted("\xc2\x9b"
                         "2J"),
            "'\\xc2\\x9b2J'");
  EXPECT_EQ(base::quoted("\x9b"
                         "2J"),
            "'\\x9b2J'");
  EXPECT_EQ(base::quoted("\xc2\x80\xc2\x9f\xc2\xa0"), "'\\xc2\\x80\\xc2\\x9f\xc2\xa0'");
}

TEST(Quoted, ShowsWhatIsNotUtf8) {
  // The first and the last character of two, three and four bytes, and those next to the
  // surrogates.
  for (const char* text : {"\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(base::quoted(text), "'" + std::string(text) + "'");
  }
  // Overlong forms, surrogates, too large, truncated, without a lead byte.
  for (const char* text :
       {"\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xe0\x82\x9b", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80",
        "\xed\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf9\x80\x80\x80", "\xff", "\xc3",
        "\xe2\x82", "\xf0\x9f\x98", "\x80"}) {
    const std::string shown = base::quoted(text);
    EXPECT_EQ(shown.size(), 4 * std::string_view(text).size() + 2) << shown;
  }
  EXPECT_EQ(base::quoted("\xc3z"), "'\\xc3z'");
}

TEST(Quoted, CutsLongText) {
  EXPECT_EQ(base::quoted(std::string(256, 'x')), "'" + std::string(256, 'x') + "'");
  EXPECT_EQ(base::quoted(std::string(257, 'x')), "'" + std::string(256, 'x') + "...'");
  // Not cut inside a character.
  EXPECT_EQ(base::quoted(std::string(255, 'x') + "\xc3\xa4"), "'" + std::string(255, 'x') + "...'");
  EXPECT_EQ(base::quoted(std::string(254, 'x') + "\xc3\xa4"),
            "'" + std::string(254, 'x') + "\xc3\xa4'");
}

TEST(Error, OnlyALackOfDescriptorsOrMemoryIsExhaustion) {
  for (const int err : {EMFILE, ENFILE, ENOBUFS, ENOMEM}) {
    EXPECT_TRUE(is_exhausted({err, std::generic_category()})) << err;
    EXPECT_TRUE(is_exhausted({err, std::system_category()})) << err;
  }
  for (const int err : {0, ECONNREFUSED, EADDRNOTAVAIL}) {
    EXPECT_FALSE(is_exhausted({err, std::generic_category()})) << err;
  }
}

}  // namespace
}  // namespace fo::base
