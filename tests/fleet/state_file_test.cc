#include "fleet/state_file.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "loop/spawn.h"
#include "os/file/file.h"
#include "support/soon.h"
#include "support/stderr_text.h"
#include "support/temp_dir.h"

namespace fo::fleet {
namespace {

TEST(StateFile, AStateThatCannotBeWrittenIsWrittenLater) {
  const test::TempDir folder;
  const std::string path = folder.path("late/state");
  const test::StderrText log;
  boost::asio::io_context loop(1);
  int failures = 0;
  // The state has changed once, before the first attempt.
  loop::spawn(loop, keep_state(
                        path,
                        [is_new = true]() mutable {
                          return std::exchange(is_new, false) ? std::optional<std::string>("state")
                                                              : std::nullopt;
                        },
                        [&] {
                          if (++failures == 2)
                            std::filesystem::create_directory(folder.path("late"));
                        }));
  const base::Deadline deadline = test::soon();
  while (!std::filesystem::exists(path) && !deadline.expired()) {
    loop.run_one_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(os::read_file(path, base::kMiB), "state");
  EXPECT_EQ(failures, 2);
  const std::string text = log.text();
  EXPECT_EQ(text.find("No such file"), text.rfind("No such file")) << text;
}

TEST(StateFile, AnInvalidOneIsAWarningAndAMissingOneNone) {
  const test::TempDir folder;
  const auto refuse = [](const std::string& text) {
    throw base::Error(base::ExitStatus::kBadData, "no state: " + text);
  };
  const test::StderrText log;
  load_state(folder.path("state"), base::kMiB, refuse);
  EXPECT_EQ(log.text(), "");
  os::write_file_atomic(folder.path("state"), "x");
  load_state(folder.path("state"), base::kMiB, refuse);
  EXPECT_TRUE(log.contains("state': no state: x; starting without it")) << log.text();
}

}  // namespace
}  // namespace fo::fleet
