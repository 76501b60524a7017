#include "engine/drivers/driver_test.h"

namespace fo::engine {
namespace {

using base::ExitStatus;
using test::failure_of;
using test::in_ms;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class SglangDriverTest : public test::DriverTest {
 protected:
  SglangDriverTest() {
    options_.kind = EngineKind::kSglang;
    options_.url = engine_.url();
    use(options_);
  }
  ~SglangDriverTest() override { EXPECT_THAT(engine_.broken, IsEmpty()); }

  test::SglangStandIn engine_{loop_};
  DriverOptions options_;
};

TEST_F(SglangDriverTest, PausesFlushesReleasesAndBack) {
  sleep();
  EXPECT_THAT(engine_.asked, ElementsAre("POST /pause_generation {}", "POST /flush_cache",
                                         "POST /release_memory_occupation {}"));
  EXPECT_TRUE(engine_.released);
  engine_.asked.clear();
  wake();
  EXPECT_THAT(engine_.asked,
              ElementsAre("POST /resume_memory_occupation {}", "POST /continue_generation {}"));
  EXPECT_FALSE(engine_.released);
}

TEST_F(SglangDriverTest, SleepingTwiceIsOneSleepAndWakingTwiceOneWake) {
  wake();
  sleep();
  sleep();
  wake();
  wake();
  EXPECT_FALSE(engine_.released);
}

TEST_F(SglangDriverTest, AbortsWhatRunsBeforeItSleeps) {
  engine_.requests = 3;
  sleep(SleepMode::kAbort);
  EXPECT_EQ(engine_.aborted, 3);
  EXPECT_TRUE(engine_.released);
}

TEST_F(SglangDriverTest, WaitsForWhatRunsBeforeItPauses) {
  engine_.requests = 3;
  sleep(SleepMode::kFinish);
  EXPECT_EQ(engine_.aborted, 0);
  EXPECT_TRUE(engine_.released);
}

TEST_F(SglangDriverTest, NeverReleasesWhatStaysBusy) {
  engine_.requests = 1000000;
  const auto failure = failure_of([&] { sleep(SleepMode::kFinish, in_ms(100)); });
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
  EXPECT_THAT(failure.message, HasSubstr("timed out"));
  EXPECT_THAT(engine_.asked, Not(Contains(HasSubstr("/release"))));
}

TEST_F(SglangDriverTest, AnOldEngineIsWatchedByItsMetrics) {
  engine_.make_old();
  engine_.requests = 3;
  sleep();
  EXPECT_TRUE(engine_.released);
  wake();
  EXPECT_FALSE(engine_.released);
  engine_.requests = 1000000;
  const auto failure = failure_of([&] { sleep(SleepMode::kAbort, in_ms(100)); });
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
  EXPECT_THAT(failure.message, HasSubstr("timed out"));
  EXPECT_FALSE(engine_.released);
}

TEST_F(SglangDriverTest, AnOldEngineThatTellsNothingSleepsOnlyBeforeItIsUsed) {
  engine_.make_old();
  engine_.forget("GET /metrics");
  sleep(SleepMode::kAbort);
  EXPECT_TRUE(engine_.released);
  wake();
  engine_.requests = 1;
  for (const SleepMode mode : {SleepMode::kAbort, SleepMode::kFinish}) {
    const auto failure = failure_of([&] { sleep(mode); });
    EXPECT_EQ(failure.status, ExitStatus::kConfig);
    EXPECT_THAT(failure.message, HasSubstr("--enable-metrics"));
    EXPECT_FALSE(engine_.released);
  }
}

TEST_F(SglangDriverTest, WhatAnOldEngineThatTellsNothingWorksOnIsNotCutShort) {
  engine_.make_old();
  engine_.forget("GET /metrics");
  EXPECT_EQ(failure_of([&] { sleep(SleepMode::kFinish); }).status, ExitStatus::kConfig);
  EXPECT_FALSE(engine_.released);
}

TEST_F(SglangDriverTest, GaugesThatLagAfterAPauseHoldNothingUp) {
  engine_.on("GET /metrics", 200, "sglang:num_running_reqs 5\nsglang:num_queue_reqs 0\n");
  sleep(SleepMode::kAbort, in_ms(5000));
  EXPECT_TRUE(engine_.released);
}

TEST_F(SglangDriverTest, AnEngineWithoutMemorySaverIsAConfigurationError) {
  engine_.forget("POST /release_memory_occupation");
  const auto failure = failure_of([&] { sleep(); });
  EXPECT_EQ(failure.status, ExitStatus::kConfig);
  EXPECT_THAT(failure.message, HasSubstr("--enable-memory-saver"));
}

TEST_F(SglangDriverTest, AnEngineThatCouldNotSleepWorksOnAfterAWake) {
  engine_.on("POST /release_memory_occupation", 400, R"({"error":{"message":"no"}})");
  const auto failure = failure_of([&] { sleep(); });
  EXPECT_EQ(failure.status, ExitStatus::kSoftware);
  EXPECT_THAT(failure.message, EndsWith("/release_memory_occupation: status 400: no"));
  engine_.asked.clear();
  wake();
  EXPECT_THAT(engine_.asked, ElementsAre("POST /continue_generation {}"));
}

TEST_F(SglangDriverTest, ARefusedWakeIsAFailureAndCanBeTriedAgain) {
  sleep();
  engine_.on("POST /continue_generation", 500, "no");
  EXPECT_EQ(failure_of([&] { wake(); }).status, ExitStatus::kSoftware);
  engine_.on("POST /continue_generation", 200, "");
  engine_.asked.clear();
  wake();
  EXPECT_THAT(engine_.asked, ElementsAre("POST /continue_generation {}"));
}

TEST_F(SglangDriverTest, IsNeverAskedToGenerateWithoutMemory) {
  EXPECT_EQ(check_health(), std::nullopt);
  EXPECT_EQ(engine_.asked.back(), "GET /health");
  sleep();
  EXPECT_EQ(check_health(), std::nullopt);
  EXPECT_EQ(engine_.asked.back(), "GET /ping");
  wake();
  EXPECT_EQ(check_health(), std::nullopt);
  EXPECT_EQ(engine_.asked.back(), "GET /health");
}

TEST_F(SglangDriverTest, AReleaseWithoutAnAnswerMayHaveReleased) {
  engine_.hang("POST /release_memory_occupation");
  EXPECT_EQ(failure_of([&] { sleep(SleepMode::kAbort, in_ms(50)); }).status, ExitStatus::kTryAgain);
  EXPECT_EQ(check_health(), std::nullopt);
  EXPECT_EQ(engine_.asked.back(), "GET /ping");
  engine_.asked.clear();
  const auto failure = failure_of([&] { sleep(); });
  EXPECT_EQ(failure.status, ExitStatus::kSoftware);
  EXPECT_THAT(failure.message, HasSubstr("may be released already"));
  EXPECT_THAT(engine_.asked, IsEmpty());
}

TEST_F(SglangDriverTest, WithCommandsThatSleepOnlyTheServerIsAsked) {
  options_.sleep_command = "true";
  use(options_);
  EXPECT_EQ(check_health(), std::nullopt);
  EXPECT_EQ(engine_.asked.back(), "GET /ping");
  sleep();
  engine_.released = true;
  wake();
  EXPECT_FALSE(engine_.released);
  EXPECT_EQ(check_health(), std::nullopt);
  EXPECT_EQ(engine_.asked.back(), "GET /ping");
}

TEST_F(SglangDriverTest, ProvesAndTellsIdlenessByItsOwnGauges) {
  prove();
  EXPECT_EQ(is_idle(), true);
  engine_.requests = 1;
  EXPECT_EQ(is_idle(), false);
  engine_.forget("GET /metrics");
  EXPECT_EQ(is_idle(), std::nullopt);
}

TEST_F(SglangDriverTest, ProgressIsItsOwnCount) {
  EXPECT_EQ(progress(), std::nullopt);
  engine_.on("GET /metrics", 200,
             "vllm:generation_tokens_total 1\nsglang:generation_tokens_total{tp_rank=\"0\"} 9.0\n");
  EXPECT_EQ(progress(), 9);
}

}  // namespace
}  // namespace fo::engine
