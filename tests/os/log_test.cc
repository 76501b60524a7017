#include "os/log.h"

#include <gtest/gtest.h>

namespace fo::os {
namespace {

class Log : public testing::Test {
 protected:
  ~Log() override { set_log("fo", LogLevel::kWarning); }
};

TEST_F(Log, ALineIsToolLevelText) {
  set_log("gms-x", LogLevel::kDebug);
  testing::internal::CaptureStderr();
  log(LogLevel::kError, "open '{}': no", "f");
  log(LogLevel::kWarning, "w");
  log(LogLevel::kInfo, "i");
  log(LogLevel::kDebug, "d");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "gms-x: error: open 'f': no\ngms-x: warning: w\ngms-x: info: i\ngms-x: debug: d\n");
}

TEST_F(Log, LessImportantLinesAreLeftOut) {
  set_log("t", LogLevel::kWarning);
  testing::internal::CaptureStderr();
  log(LogLevel::kInfo, "i");
  log(LogLevel::kWarning, "w");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "t: warning: w\n");
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
}

TEST_F(Log, AMessageStaysOnOneLine) {
  testing::internal::CaptureStderr();
  log_line(LogLevel::kError, "a\nt: error: forged");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "fo: error: a t: error: forged\n");
}

}  // namespace
}  // namespace fo::os
