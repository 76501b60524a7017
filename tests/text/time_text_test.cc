#include "text/time_text.h"

#include <gtest/gtest.h>

namespace fo::text {
namespace {

TEST(TimeText, IsUtcToTheMillisecond) {
  EXPECT_EQ(format_time(std::chrono::system_clock::time_point{}), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(format_time(std::chrono::system_clock::time_point{
                std::chrono::milliseconds(1'000'000'000'007)}),
            "2001-09-09T01:46:40.007Z");
}

TEST(TimeText, IsReadAsItIsWritten) {
  EXPECT_EQ(format_time(*parse_time("2026-11-21T05:33:00.123Z")), "2026-11-21T05:33:00.123Z");
  for (const char* text :
       {"", "2026-11-21T05:33:00Z", "2026-11-21 05:33:00.123Z", "2026-02-31T05:33:00.123Z",
        "2026-11-21T25:33:00.123Z", "2026-11-21T05:33:00.123Z ", "2026-11-2aT05:33:00.123Z",
        "5219-03-28T23:59:59.000Z", "2262-04-11T23:47:16.854Z", "0000-01-01T00:00:00.000Z"}) {
    EXPECT_EQ(parse_time(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace fo::text
