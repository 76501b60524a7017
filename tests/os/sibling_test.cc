#include "os/process/sibling.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "os/file/pipe.h"
#include "support/environment.h"
#include "support/failure.h"
#include "support/soon.h"
#include "support/temp_dir.h"

namespace fo::os {
namespace {

namespace fs = std::filesystem;
using base::Deadline;
using base::ExitStatus;
using fo::test::failure_of;

using fo::test::soon;

class Sibling : public testing::Test {
 protected:
  fo::test::TempDir dir_;
  fo::test::ScopedVariable environment_{"FO_LIBEXEC_DIR", dir_.path()};
};

TEST_F(Sibling, IsFoundInTheFolderThatIsNamed) {
  std::ofstream(dir_.path("helper")) << "#!/bin/sh\n";
  fs::permissions(dir_.path("helper"), fs::perms::owner_all);
  EXPECT_EQ(find_sibling("helper"), dir_.path("helper"));
}

TEST_F(Sibling, AbsentOrNotExecutableIsUnavailable) {
  std::ofstream(dir_.path("text")) << "no program";
  for (const char* name : {"absent", "text"}) {
    EXPECT_EQ(failure_of([&] { find_sibling(name); }).status, ExitStatus::kUnavailable) << name;
  }
}

TEST_F(Sibling, IsLookedForBesideTheProgramOtherwise) {
  environment_.set("FO_LIBEXEC_DIR", "");
  const std::string expected = fs::path(FO_BUILD_DIR) / "libexec/fo/no-such-helper";
  const std::string message = failure_of([] { find_sibling("no-such-helper"); }).message;
  EXPECT_NE(message.find(expected), std::string::npos) << message;
}

TEST(RunCaptured, KeepsOutputsAndStatusApart) {
  const auto done = run_captured({"sh", "-c", "cat; echo out; echo err >&2; exit 3"}, soon());
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, 3);
  EXPECT_EQ(done->out, "out\n");
  EXPECT_EQ(done->err, "err\n");
}

TEST(RunCaptured, SaysWhatSignalItDiedOf) {
  EXPECT_EQ(run_captured({"sh", "-c", "kill -KILL $$"}, soon())->status, 137);
}

TEST(RunCaptured, KeepsTheStartOfALongOutputAndReadsItAll) {
  const auto done = run_captured({"head", "-c", "1000000", "/dev/zero"}, soon());
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, 0);
  EXPECT_EQ(done->out.size(), 64u * 1024);
  EXPECT_EQ(run_captured({"head", "-c", "1000000", "/dev/zero"}, soon(), -1, 500000)->out.size(),
            500000u);
}

TEST(RunCaptured, WhatAHelperReportedIsTheError) {
  const base::Error said =
      helper_error({69, "", "fo-x: error: no driver\nmore\n"}, "fo-x", "ask: ");
  EXPECT_EQ(said.status(), ExitStatus::kUnavailable);
  EXPECT_STREQ(said.what(), "ask: no driver");
  const base::Error silent = helper_error({139, "", ""}, "fo-x");
  EXPECT_EQ(silent.status(), ExitStatus::kSoftware);
  EXPECT_STREQ(silent.what(), "fo-x ended with status 139");
}

TEST(RunCaptured, KillsWhatIsNotDoneInTime) {
  const auto moment = Deadline::after(std::chrono::milliseconds(50));
  EXPECT_EQ(run_captured({"sleep", "1000"}, moment), std::nullopt);
  // Its outputs are closed, but it still runs.
  const auto another = Deadline::after(std::chrono::milliseconds(50));
  EXPECT_EQ(run_captured({"sh", "-c", "exec sleep 1000 >&- 2>&-"}, another), std::nullopt);
}

TEST(RunCaptured, WhatTheProgramLeavesBehindIsNotWaitedFor) {
  const auto done = run_captured({"sh", "-c", "sleep 1000 & echo $!"}, soon());
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, 0);
  ::kill(std::stoi(done->out), SIGKILL);
}

TEST(RunCaptured, AnInterruptEndsOneThatHasClosedItsOutputs) {
  Pipe interrupt;
  interrupt.writer.reset();
  EXPECT_EQ(run_captured({"sh", "-c", "exec sleep 1000 >&- 2>&-"}, soon(), interrupt.reader.get()),
            std::nullopt);
}

TEST(RunCaptured, ProgramThatCannotBeRunIsAnError) {
  EXPECT_THROW(run_captured({"/nonexistent/program"}, soon()), base::Error);
}

}  // namespace
}  // namespace fo::os
