#include "base/units.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace fo::base {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(ParseDuration, TakesEveryUnit) {
  EXPECT_EQ(parse_duration("250us"), microseconds(250));
  EXPECT_EQ(parse_duration("500ms"), milliseconds(500));
  EXPECT_EQ(parse_duration("30s"), seconds(30));
  EXPECT_EQ(parse_duration("2m"), minutes(2));
  EXPECT_EQ(parse_duration("1h"), hours(1));
  EXPECT_EQ(parse_duration("0"), Duration::zero());
  EXPECT_EQ(parse_duration("0s"), Duration::zero());
  EXPECT_EQ(parse_duration("1.5s"), milliseconds(1500));
  EXPECT_EQ(parse_duration("0.1ms"), microseconds(100));
}

TEST(ParseDuration, RefusesEverythingElse) {
  for (const char* text : {"",    " ",    "5",    "s",   "-1s",   "+1s",  "1 s",   " 1s",
                           "1s ", "1S",   "1sec", "1d",  "1s1ms", "1e3s", "0x1s",  "nan",
                           "inf", "infs", "nans", ".5s", "1,5s",  "00",   "1..5s", "1mss"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << '"' << text << '"';
  }
  EXPECT_EQ(parse_duration(std::string_view("1s\0", 3)), std::nullopt);
}

TEST(ParseDuration, RefusesMoreThanACentury) {
  EXPECT_NE(parse_duration("876000h"), std::nullopt);
  EXPECT_EQ(parse_duration("876601h"), std::nullopt);
  EXPECT_EQ(parse_duration(std::string(400, '9') + "s"), std::nullopt);
}

TEST(FormatDuration, RoundTrips) {
  for (const Duration duration :
       {Duration::zero(), Duration(microseconds(1)), Duration(milliseconds(1500)),
        Duration(seconds(59)), Duration(seconds(60)), Duration(minutes(90)), Duration(hours(25)),
        Duration(microseconds(1'000'001))}) {
    EXPECT_EQ(parse_duration(format_duration(duration)), duration) << format_duration(duration);
  }
  EXPECT_EQ(format_duration(milliseconds(1500)), "1500ms");
  EXPECT_EQ(format_duration(seconds(120)), "2m");
  EXPECT_EQ(format_duration(Duration::zero()), "0s");
}

TEST(ParseSize, TakesEveryUnit) {
  EXPECT_EQ(parse_size("0"), 0U);
  EXPECT_EQ(parse_size("4096"), 4096U);
  EXPECT_EQ(parse_size("17B"), 17U);
  EXPECT_EQ(parse_size("4KiB"), 4 * kKiB);
  EXPECT_EQ(parse_size("512MiB"), 512 * kMiB);
  EXPECT_EQ(parse_size("4GiB"), 4 * kGiB);
  EXPECT_EQ(parse_size("1TiB"), 1024 * kGiB);
  EXPECT_EQ(parse_size("1KB"), 1000U);
  EXPECT_EQ(parse_size("1MB"), 1'000'000U);
  EXPECT_EQ(parse_size("1GB"), 1'000'000'000U);
  EXPECT_EQ(parse_size("1TB"), 1'000'000'000'000U);
}

TEST(ParseSize, RefusesEverythingElse) {
  for (const char* text : {"", " ", "B", "GiB", "-1", "+1", "1.5GiB", "1 GiB", "1G", "1gib", "1K",
                           "0x10", "1e3", "1GiBs", " 1", "1 "}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << '"' << text << '"';
  }
}

TEST(ParseSize, RefusesWhatDoesNotFit) {
  EXPECT_EQ(parse_size("9223372036854775807"), 9223372036854775807U);
  EXPECT_EQ(parse_size("9223372036854775808"), std::nullopt);
  EXPECT_EQ(parse_size("8388607TiB"), 8388607ULL << 40);
  EXPECT_EQ(parse_size("8388608TiB"), std::nullopt);
  EXPECT_EQ(parse_size("99999999999999999999"), std::nullopt);
}

TEST(FormatSize, IsForPeople) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024), "1 KiB");
  EXPECT_EQ(format_size(kGiB + kGiB / 2), "1.5 GiB");
  EXPECT_EQ(format_size(2048 * 1024 * kGiB), "2048 TiB");
  EXPECT_EQ(format_size(kGiB - 1), "1 GiB");
  EXPECT_EQ(format_size(512 * kMiB + 1), "512 MiB");
}

TEST(ParseUint, TakesDigitsOnly) {
  EXPECT_EQ(parse_uint("0"), 0U);
  EXPECT_EQ(parse_uint("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  for (const char* text : {"", "-0", "+1", " 1", "1 ", "1a", "18446744073709551616"}) {
    EXPECT_EQ(parse_uint(text), std::nullopt) << text;
  }
}

TEST(Units, IdsAreNumbersThatAUserCanHave) {
  EXPECT_EQ(parse_id("0"), 0U);
  EXPECT_EQ(parse_id("4294967294"), 4294967294U);
  for (const char* text : {"", "-1", "root", "4294967295", "4294967296"}) {
    EXPECT_EQ(parse_id(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace fo::base
