#include "engine/drivers/driver_test.h"
#include "os/file/file.h"
#include "os/process/process_tree.h"
#include "support/temp_dir.h"

namespace fo::engine {
namespace {

using base::ExitStatus;
using test::failure_of;
using test::in_ms;

class CommandDriverTest : public test::DriverTest {
 protected:
  CommandDriverTest() {
    options_.kind = EngineKind::kCommand;
    options_.sleep_command = "echo sleep >>" + said_;
    options_.wake_command = "echo wake >>" + said_;
  }
  std::string said() { return os::read_file(said_, 4096); }

  test::TempDir dir_;
  std::string said_ = dir_.path("said");
  DriverOptions options_;
};

TEST_F(CommandDriverTest, RunsAProgramForEachStep) {
  options_.health_command = "echo health >>" + said_;
  options_.prove_command = "echo prove >>" + said_;
  use(options_);
  sleep();
  EXPECT_EQ(check_health(), std::nullopt);
  wake();
  prove();
  EXPECT_EQ(said(), "sleep\nhealth\nwake\nprove\n");
  EXPECT_EQ(is_idle(), std::nullopt);
}

TEST_F(CommandDriverTest, ChecksWithoutACommandPass) {
  use(options_);
  EXPECT_EQ(check_health(), std::nullopt);
  prove();
}

TEST_F(CommandDriverTest, SleepAndWakeNeedACommand) {
  for (std::string* command : {&options_.sleep_command, &options_.wake_command}) {
    const std::string before = std::exchange(*command, "");
    EXPECT_EQ(failure_of([&] { use(options_); }).status, ExitStatus::kUsage);
    *command = before;
  }
}

TEST_F(CommandDriverTest, AFailureHasTheLastLineOfItsErrors) {
  options_.wake_command = "echo first >&2; echo 'last one' >&2; echo out; exit 3";
  options_.sleep_command = "exit 4";
  options_.health_command = "echo ill >&2; exit 1";
  use(options_);
  const auto awake = failure_of([&] { wake(); });
  EXPECT_EQ(awake.status, ExitStatus::kSoftware);
  EXPECT_THAT(awake.message, testing::StartsWith("wake the engine: command 'echo first"));
  EXPECT_THAT(awake.message, testing::EndsWith("exit 3': status 3: last one"));
  EXPECT_EQ(failure_of([&] { sleep(); }).message,
            "put the engine to sleep: command 'exit 4': status 4");
  EXPECT_THAT(check_health().value_or(""), testing::EndsWith("status 1: ill"));
}

TEST_F(CommandDriverTest, WhatTakesTooLongIsKilled) {
  options_.wake_command = "sleep 1000 & sleep 1000";
  options_.health_command = "exec sleep 1000";
  use(options_);
  const auto failure = failure_of([&] { wake(in_ms(50)); });
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
  EXPECT_EQ(failure.message, "wake the engine: command 'sleep 1000 & sleep 1000': timed out");
  EXPECT_THAT(check_health(in_ms(50)).value_or(""), testing::EndsWith("timed out"));
  loop_.run_until([] { return os::descendants().empty(); });
}

TEST_F(CommandDriverTest, ACommandTakesTheStepOfAnotherKind) {
  test::VllmStandIn engine(loop_);
  options_.kind = EngineKind::kVllm;
  options_.url = engine.url();
  use(options_);
  sleep();
  wake();
  EXPECT_EQ(said(), "sleep\nwake\n");
  EXPECT_TRUE(engine.asked.empty());
  EXPECT_EQ(check_health(), std::nullopt);
  prove();
  EXPECT_EQ(is_idle(), std::nullopt);
  EXPECT_THAT(engine.asked,
              testing::ElementsAre("GET /health", "GET /v1/models", testing::_, "GET /metrics"));
}

TEST_F(CommandDriverTest, AnotherKindTakesTheStepWithoutACommand) {
  test::VllmStandIn engine(loop_);
  DriverOptions options;
  options.url = engine.url();
  options.prove_command = "echo prove >>" + said_;
  use(options);
  sleep();
  EXPECT_TRUE(engine.awake.empty());
  wake();
  prove();
  EXPECT_EQ(said(), "prove\n");
}

}  // namespace
}  // namespace fo::engine
