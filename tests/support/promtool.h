// Runs Prometheus' own linter on a text of metrics.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "os/file/file.h"
#include "os/process/sibling.h"
#include "support/must_run.h"
#include "support/temp_dir.h"

namespace fo::test {

/// A fixture whose tests are skipped if promtool is not installed, or fail if FO_MUST_RUN requires
/// it.
class Promtool : public testing::Test {
 protected:
  void SetUp() override {
    if (check("").status != 127) return;
    FO_SKIP("promtool", "promtool is not installed");
  }

  /// Empty if there are no complaints.
  static std::string complaints(const std::string& text) {
    const os::Captured ended = check(text);
    EXPECT_TRUE((ended.status == 0) == ended.out.empty()) << ended.status;
    return ended.out;
  }

 private:
  static os::Captured check(const std::string& text) {
    const TempDir dir;
    os::write_file_atomic(dir.path("metrics"), text);
    const auto ended = os::run_captured(
        {"sh", "-c",
         "command -v promtool >&2 || exit 127; exec promtool check metrics <\"$0\" "
         "2>&1",
         dir.path("metrics")},
        base::Deadline::after(std::chrono::seconds(60)));
    EXPECT_TRUE(ended);
    return ended.value_or(os::Captured{});
  }
};

}  // namespace fo::test
