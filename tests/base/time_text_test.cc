#include "base/time_text.h"

#include <gtest/gtest.h>

namespace fo::base {
namespace {

TEST(TimeText, IsUtcToTheMillisecond) {
  EXPECT_EQ(format_time(std::chrono::system_clock::time_point{}), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(format_time(std::chrono::system_clock::time_point{
                std::chrono::milliseconds(1'000'000'000'007)}),
            "2001-09-09T01:46:40.007Z");
}

}  // namespace
}  // namespace fo::base
