#include "os/process/exec.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>

#include "os/process/process.h"
#include "os/process/signals.h"
#include "support.h"
#include "support/temp_dir.h"

namespace fo::os::test {
namespace {

/// The stdout of a child that runs `body`.
std::string output_of(const std::function<int()>& body) {
  Pipe pipe;
  const Child child = fork_child([&] {
    if (::dup2(pipe.writer.get(), STDOUT_FILENO) < 0) return 1;
    return body();
  });
  pipe.writer.reset();
  std::string text = read_to_end(pipe.reader.get());
  EXPECT_EQ(child.wait(soon()), 0);
  return text;
}

TEST(Exec, BecomesTheCommandWithItsArgumentsAndEnvironment) {
  EXPECT_EQ(output_of([]() -> int {
              set_environment("FO_TEST_VALUE", "x y");
              exec_command({"sh", "-c", "echo \"$FO_TEST_VALUE|$1\"", "sh", "a  b"});
            }),
            "x y|a  b\n");
}

TEST(Exec, OnlyKeptDescriptorsAreInherited) {
  const Pipe kept;
  const Pipe closed;
  const std::string text = output_of([&]() -> int {
    const std::array<int, 1> keep{kept.writer.get()};
    exec_command({"sh", "-c", "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done"}, keep);
  });
  EXPECT_NE(("\n" + text).find("\n" + std::to_string(kept.writer.get()) + "\n"), std::string::npos);
  EXPECT_EQ(("\n" + text).find("\n" + std::to_string(closed.writer.get()) + "\n"),
            std::string::npos);
}

TEST(Exec, GivesSignalsBackAsTheyWereFound) {
  EXPECT_EQ(output_of([]() -> int {
              block_signals(signal_set({SIGTERM, SIGINT}));
              exec_command({"sh", "-c", "grep -E '^Sig(Blk|Ign)' /proc/self/status | cut -f2"});
            }),
            "0000000000000000\n0000000000000000\n");
}

TEST(Exec, WhatIsNotThereIs127) {
  const Failure failure = failure_of([] { exec_command({"/nonexistent/x"}); });
  EXPECT_EQ(failure.status, base::ExitStatus::kNotFound);
  EXPECT_EQ(failure.message, "run '/nonexistent/x': No such file or directory");
}

TEST(Exec, WhatCannotRunIs126) {
  const fo::test::TempDir folder;
  std::ofstream(folder.path("plain")) << "text";
  EXPECT_EQ(failure_of([&] { exec_command({folder.path("plain")}); }).status,
            base::ExitStatus::kCannotRun);
  EXPECT_EQ(failure_of([&] { exec_command({folder.path()}); }).status,
            base::ExitStatus::kCannotRun);
}

TEST(Exec, ADescriptorThatIsNotOpenCannotBeKept) {
  const std::array<int, 1> keep{1 << 20};
  EXPECT_EQ(failure_of([&] { exec_command({"true"}, keep); }).status, base::ExitStatus::kOsError);
}

}  // namespace
}  // namespace fo::os::test
