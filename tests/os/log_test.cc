#include "os/log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "support/environment.h"
#include "text/time_text.h"

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

TEST_F(Log, TimedLinesBeginWithTheTime) {
  set_log("t", LogLevel::kWarning, LogFormat::kTimed);
  testing::internal::CaptureStderr();
  const text::WallTime before = std::chrono::system_clock::now();
  log(LogLevel::kWarning, "w");
  const std::string line = testing::internal::GetCapturedStderr();
  const std::size_t blank = line.find(' ');
  ASSERT_NE(blank, std::string::npos);
  EXPECT_EQ(line.substr(blank), " t: warning: w\n");
  const auto time = text::parse_time(line.substr(0, blank));
  ASSERT_TRUE(time);
  EXPECT_GE(*time + std::chrono::milliseconds(1), before);
  EXPECT_LE(*time, std::chrono::system_clock::now());
}

TEST_F(Log, JsonLinesAreObjectsWhateverIsSaid) {
  set_log("t", LogLevel::kWarning, LogFormat::kJson);
  const std::string long_text(PIPE_BUF, '\x01');
  for (const std::string& text : {std::string("a\n\"b\" \xff"), long_text, std::string()}) {
    testing::internal::CaptureStderr();
    log_line(LogLevel::kWarning, text);
    const std::string line = testing::internal::GetCapturedStderr();
    EXPECT_LE(line.size(), PIPE_BUF);
    ASSERT_EQ(line.find('\n'), line.size() - 1);
    const auto object = nlohmann::json::parse(line);
    EXPECT_EQ(object.size(), 4u);
    EXPECT_EQ(object["level"], "warning");
    EXPECT_EQ(object["tool"], "t");
    EXPECT_TRUE(text::parse_time(object["time"].get<std::string>()));
    const std::string message = object["message"];
    EXPECT_EQ(message.empty(), text.empty());
    if (text.starts_with('a')) {
      EXPECT_EQ(message, "a\n\"b\" \ufffd");
    }
  }
}

TEST_F(Log, AJournalIsKnownByItsNumbers) {
  struct stat info {};
  ASSERT_EQ(::fstat(STDERR_FILENO, &info), 0);
  const std::string numbers = std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
  fo::test::ScopedVariable environment("JOURNAL_STREAM", numbers);
  EXPECT_TRUE(logs_to_journal());
  environment.set("JOURNAL_STREAM", numbers + "1");
  EXPECT_FALSE(logs_to_journal());
  environment.unset("JOURNAL_STREAM");
  EXPECT_FALSE(logs_to_journal());
}

}  // namespace
}  // namespace fo::os
