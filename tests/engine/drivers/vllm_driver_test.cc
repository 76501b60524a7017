#include "engine/drivers/driver_test.h"
#include "support/ports.h"

namespace fo::engine {
namespace {

using base::ExitStatus;
using test::failure_of;
using test::in_ms;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

class VllmDriverTest : public test::DriverTest {
 protected:
  VllmDriverTest() { use_level(1); }
  void use_level(int level) {
    DriverOptions options;
    options.url = engine_.url();
    options.sleep_level = level;
    use(options);
  }
  /// The message of a call that fails with `status`.
  std::string message_of(const std::function<void()>& call, ExitStatus status) {
    const test::Failure failure = failure_of(call);
    EXPECT_EQ(failure.status, status) << failure.message;
    return failure.message;
  }

  test::VllmStandIn engine_{loop_};
};

TEST_F(VllmDriverTest, SleepsByQueryAndSeesThatItSleeps) {
  sleep();
  EXPECT_THAT(engine_.asked, ElementsAre("GET /is_sleeping", "POST /sleep?level=1&mode=abort",
                                         "GET /is_sleeping"));
  EXPECT_TRUE(engine_.awake.empty());
}

TEST_F(VllmDriverTest, LevelAndModeReachTheEngine) {
  use_level(2);
  sleep(SleepMode::kFinish);
  EXPECT_EQ(engine_.level, 2);
  EXPECT_EQ(engine_.mode, "wait");
}

TEST_F(VllmDriverTest, SleepingTwiceIsOneSleepAndWakingTwiceOneWake) {
  for (const int level : {1, 2}) {
    use_level(level);
    wake();
    sleep();
    sleep();
    wake();
    wake();
  }
  EXPECT_THAT(engine_.broken, IsEmpty());
  EXPECT_EQ(engine_.awake.size(), 2u);
}

TEST_F(VllmDriverTest, WakesFromLevelOneInOneStep) {
  sleep();
  engine_.asked.clear();
  wake();
  EXPECT_THAT(engine_.asked, ElementsAre("GET /is_sleeping", "POST /wake_up", "GET /is_sleeping"));
}

TEST_F(VllmDriverTest, WakesFromLevelTwoInTheOrderThatItNeeds) {
  use_level(2);
  sleep();
  EXPECT_FALSE(engine_.weights_loaded);
  engine_.asked.clear();
  wake();
  EXPECT_THAT(engine_.asked, ElementsAre("GET /is_sleeping", "POST /wake_up?tags=weights",
                                         R"(POST /collective_rpc {"method":"reload_weights"})",
                                         "POST /wake_up?tags=kv_cache", "GET /is_sleeping",
                                         "POST /reset_prefix_cache"));
  EXPECT_TRUE(engine_.weights_loaded);
  EXPECT_THAT(engine_.broken, IsEmpty());
}

TEST_F(VllmDriverTest, WaitsForAStepThatIsAnsweredBeforeItIsDone) {
  engine_.late = 3;
  sleep();
  EXPECT_TRUE(engine_.awake.empty());
  wake();
  EXPECT_EQ(engine_.awake.size(), 2u);
  EXPECT_THAT(engine_.broken, IsEmpty());
}

TEST_F(VllmDriverTest, AStepThatNeverHappensTimesOut) {
  engine_.late = 1000000;
  EXPECT_THAT(message_of([&] { sleep(SleepMode::kAbort, in_ms(100)); }, ExitStatus::kTryAgain),
              HasSubstr("timed out"));
  engine_.late = 0;
  sleep();
  engine_.late = 1000000;
  EXPECT_THAT(message_of([&] { wake(in_ms(100)); }, ExitStatus::kTryAgain), HasSubstr("timed out"));
}

TEST_F(VllmDriverTest, AnEngineWithoutSleepModeIsAConfigurationError) {
  for (const char* route : {"GET /is_sleeping", "POST /sleep"}) {
    test::VllmStandIn engine(loop_);
    engine.forget(route);
    DriverOptions options;
    options.url = engine.url();
    use(options);
    const std::string message = message_of([&] { sleep(); }, ExitStatus::kConfig);
    EXPECT_THAT(message, HasSubstr("--enable-sleep-mode"));
    EXPECT_THAT(message, HasSubstr("VLLM_SERVER_DEV_MODE=1"));
  }
}

TEST_F(VllmDriverTest, AFailedStepNamesTheRequestAndTheReason) {
  engine_.on("POST /sleep", 500,
             R"({"error":{"message":"CUDA error: \nout of memory","code":500}})");
  EXPECT_EQ(message_of([&] { sleep(); }, ExitStatus::kSoftware),
            "put the engine to sleep: POST " + engine_.url() +
                "/sleep?level=1&mode=abort: status 500: CUDA error:  out of memory");
}

TEST_F(VllmDriverTest, AFailedWakeGoesNoFurther) {
  use_level(2);
  sleep();
  engine_.on("POST /collective_rpc", 500, "Internal Server Error");
  EXPECT_THAT(message_of([&] { wake(); }, ExitStatus::kSoftware),
              EndsWith("/collective_rpc: status 500: Internal Server Error"));
  EXPECT_THAT(engine_.asked.back(), HasSubstr("/collective_rpc"));
}

TEST_F(VllmDriverTest, AWakeThatFailedBetweenItsHalvesGoesOnFromThere) {
  use_level(2);
  for (const std::string failing : {"POST /collective_rpc", "POST /reset_prefix_cache"}) {
    sleep();
    const auto good = engine_.route(failing);
    engine_.on(failing, 500, "no");
    message_of([&] { wake(); }, ExitStatus::kSoftware);
    message_of([&] { wake(); }, ExitStatus::kSoftware);
    engine_.on(failing, good);
    wake();
    EXPECT_EQ(engine_.awake.size(), 2u);
    EXPECT_TRUE(engine_.weights_loaded);
    EXPECT_EQ(engine_.asked.back(), "POST /reset_prefix_cache");
    EXPECT_THAT(engine_.broken, IsEmpty());
    engine_.asked.clear();
    wake();
    EXPECT_THAT(engine_.asked, ElementsAre("GET /is_sleeping"));
  }
}

TEST_F(VllmDriverTest, AHalfThatWasRefusedIsAskedForAgain) {
  use_level(2);
  sleep();
  const auto good = engine_.route("POST /wake_up");
  engine_.on("POST /wake_up", 500, "no");
  message_of([&] { wake(); }, ExitStatus::kSoftware);
  engine_.on("POST /wake_up", good);
  wake();
  EXPECT_EQ(engine_.awake.size(), 2u);
  EXPECT_THAT(engine_.broken, IsEmpty());
}

TEST_F(VllmDriverTest, AHalfWithoutAnAnswerIsNotAskedForTwice) {
  use_level(2);
  sleep();
  const auto good = engine_.route("POST /wake_up");
  engine_.hang("POST /wake_up");
  message_of([&] { wake(in_ms(50)); }, ExitStatus::kTryAgain);
  // The wake of the first half has succeeded meanwhile.
  engine_.awake = {"weights"};
  engine_.on("POST /wake_up", good);
  wake();
  EXPECT_EQ(engine_.awake.size(), 2u);
  EXPECT_THAT(engine_.broken, IsEmpty());
}

TEST_F(VllmDriverTest, AnAnswerThatIsNeitherYesNorNoIsAFailure) {
  for (const char* body : {"", "true", "{}", R"({"is_sleeping":"no"})", "[{\"is_sleeping\":1"}) {
    engine_.on("GET /is_sleeping", 200, body);
    EXPECT_THAT(message_of([&] { sleep(); }, ExitStatus::kSoftware),
                EndsWith("/is_sleeping: not true or false"));
  }
  EXPECT_THAT(engine_.asked, testing::Not(testing::Contains(HasSubstr("/sleep?"))));
}

TEST_F(VllmDriverTest, NobodyThereIsUnavailable) {
  const test::ReservedPort closed;
  DriverOptions options;
  options.url = closed.url();
  use(options);
  EXPECT_EQ(
      message_of([&] { sleep(); }, ExitStatus::kUnavailable),
      "put the engine to sleep: fetch '" + closed.url() + "/is_sleeping': Connection refused");
  message_of([&] { wake(); }, ExitStatus::kUnavailable);
  message_of([&] { prove(); }, ExitStatus::kUnavailable);
  message_of([&] { is_idle(); }, ExitStatus::kUnavailable);
  const auto reason = check_health();
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, EndsWith("Connection refused"));
}

TEST_F(VllmDriverTest, AnEngineThatSaysNothingTimesOut) {
  engine_.hang("GET /is_sleeping");
  EXPECT_THAT(message_of([&] { wake(in_ms(50)); }, ExitStatus::kTryAgain), EndsWith("timed out"));
}

TEST_F(VllmDriverTest, HealthIsTheEnginesOwn) {
  EXPECT_EQ(check_health(), std::nullopt);
  engine_.on("GET /health", 503, "");
  EXPECT_EQ(check_health(),
            "check the engine's health: GET " + engine_.url() + "/health: status 503");
  engine_.hang("GET /health");
  EXPECT_THAT(check_health(in_ms(50)).value_or(""), EndsWith("timed out"));
}

TEST_F(VllmDriverTest, AHungCoreIsFoundByTheProofAlone) {
  engine_.hang("POST /v1/completions");
  EXPECT_EQ(check_health(), std::nullopt);
  message_of([&] { prove(in_ms(50)); }, ExitStatus::kTryAgain);
}

TEST_F(VllmDriverTest, ProvesWithOneTokenOfTheFirstModelAskedForOnce) {
  prove();
  prove();
  const std::string completion =
      R"(POST /v1/completions {"ignore_eos":true,"max_tokens":1,"model":"a \"model\"",)"
      R"("prompt":"1","temperature":0})";
  EXPECT_THAT(engine_.asked, ElementsAre("GET /v1/models", completion, completion));
}

TEST_F(VllmDriverTest, ATextWithoutACountIsAProof) {
  engine_.on("POST /v1/completions", 200, R"({"choices":[{"text":"2"}]})");
  prove();
}

TEST_F(VllmDriverTest, ATextThatEndsAtOnceIsAProof) {
  engine_.on("POST /v1/completions", 200,
             R"({"choices":[{"text":"","finish_reason":"stop"}],"usage":{"completion_tokens":0}})");
  prove();
}

TEST_F(VllmDriverTest, AnswersThatNestWithoutEndAreFailures) {
  const std::string deep = test::nested_lists();
  for (const std::string& body :
       {deep, R"({"error":)" + deep + "}", R"({"choices":[{"text":)" + deep + "}]}",
        R"({"choices":[{"finish_reason":)" + deep + "}]}", R"({"choices":)" + deep + "}"}) {
    engine_.on("POST /v1/completions", 200, body);
    EXPECT_LT(message_of([&] { prove(); }, ExitStatus::kSoftware).size(), 400u);
    engine_.on("GET /is_sleeping", 200, R"({"is_sleeping":)" + deep + "}");
    message_of([&] { sleep(); }, ExitStatus::kSoftware);
    engine_.on("GET /is_sleeping", 500, body);
    message_of([&] { sleep(); }, ExitStatus::kSoftware);
  }
}

TEST_F(VllmDriverTest, AnAnswerWithoutATokenProvesNothing) {
  const std::vector<std::pair<int, std::string>> answers{
      {500, R"({"error":{"message":"EngineCore died"}})"},
      {400, R"({"object":"error","message":"no such model"})"},
      {200, R"({"error":{"message":"EngineCore died"}})"},
      {200, R"({"error":"EngineCore died","choices":[{"text":"2"}]})"},
      {200, R"({"choices":[]})"},
      {200, R"({"choices":{}})"},
      {200, R"({"choices":[{"text":""}]})"},
      {200, R"({"choices":[{"text":"2"}],"usage":{"completion_tokens":0}})"},
      {200, R"({"choices":[{"text":"2","finish_reason":"abort"}]})"},
      {200, "not json"},
      {200, ""},
      {200, "[]"},
      {200, std::string(2000000, '[')},
  };
  for (const auto& [status, body] : answers) {
    engine_.on("POST /v1/completions", status, body);
    const std::string message = message_of([&] { prove(); }, ExitStatus::kSoftware);
    EXPECT_THAT(message, testing::StartsWith("have the engine generate a token: "));
    EXPECT_LT(message.size(), 400u);
  }
}

TEST_F(VllmDriverTest, ModelsThatAreNotThereProveNothing) {
  for (const char* body : {"", "{}", R"({"data":[]})", R"({"data":[{"id":7}]})", R"({"data":7})"}) {
    engine_.on("GET /v1/models", 200, body);
    EXPECT_THAT(message_of([&] { prove(); }, ExitStatus::kSoftware),
                EndsWith("/v1/models: no model in the answer"));
  }
}

TEST_F(VllmDriverTest, AnEngineThatWantsAKeyIsAConfigurationError) {
  for (const int status : {401, 403}) {
    const std::string reason = ": status " + std::to_string(status) + ": Unauthorized";
    test::serve_completions(engine_);
    engine_.on("POST /v1/completions", status, R"({"error":"Unauthorized"})");
    EXPECT_THAT(message_of([&] { prove(); }, ExitStatus::kConfig),
                EndsWith("/v1/completions" + reason));
    engine_.on("GET /v1/models", status, R"({"error":"Unauthorized"})");
    EXPECT_THAT(message_of([&] { prove(); }, ExitStatus::kConfig), EndsWith("/v1/models" + reason));
  }
}

TEST_F(VllmDriverTest, TheModelIsAskedForAgainAfterARefusal) {
  prove();
  engine_.on("POST /v1/completions", 404, R"({"detail":"no such model"})");
  message_of([&] { prove(); }, ExitStatus::kSoftware);
  engine_.asked.clear();
  test::serve_completions(engine_);
  prove();
  EXPECT_EQ(engine_.asked.front(), "GET /v1/models");
}

TEST_F(VllmDriverTest, IsIdleWhenNothingRunsOrWaitsInAnyEngine) {
  const std::string head =
      "# HELP vllm:num_requests_running Number of requests\n"
      "# TYPE vllm:num_requests_running gauge\n"
      "vllm:num_requests_running{engine=\"0\",model_name=\"a } b\\\" 7\"} 0.0\n"
      "vllm:num_requests_running_total 5\n";
  engine_.on("GET /metrics", 200, head + "vllm:num_requests_waiting 0 1700000000000\n");
  EXPECT_EQ(is_idle(), true);
  engine_.on("GET /metrics", 200, head + "vllm:num_requests_waiting 2e0");
  EXPECT_EQ(is_idle(), false);
  engine_.on("GET /metrics", 200,
             head + "vllm:num_requests_running{engine=\"1\"} 1\nvllm:num_requests_waiting 0\n");
  EXPECT_EQ(is_idle(), false);
}

TEST_F(VllmDriverTest, WhatTheMetricsDoNotTellIsNotKnown) {
  EXPECT_EQ(is_idle(), std::nullopt);
  const std::vector<std::string> texts{
      "",
      "vllm:num_requests_running 0\n",
      "vllm:num_requests_waiting 0\n",
      "vllm:num_requests_running NaN\nvllm:num_requests_waiting 0\n",
      "vllm:num_requests_running\nvllm:num_requests_waiting 0\n",
      "vllm:num_requests_running{a=\"0\nvllm:num_requests_waiting 0\n",
      "vllm:num_requests_running{a=\"\\",
      "xvllm:num_requests_running 0\nvllm:num_requests_waiting 0\n",
  };
  for (const std::string& text : texts) {
    engine_.on("GET /metrics", 200, text);
    EXPECT_EQ(is_idle(), std::nullopt) << text;
  }
  engine_.on("GET /metrics", 503, "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n");
  EXPECT_EQ(is_idle(), std::nullopt);
}

TEST_F(VllmDriverTest, ProgressIsTheTokensOfAllItsEngines) {
  EXPECT_EQ(progress(), std::nullopt);
  const std::string other =
      "vllm:generation_tokens_created 1.7e9\n# TYPE vllm:generation_tokens_total counter\n";
  engine_.on("GET /metrics", 200, other);
  EXPECT_EQ(progress(), std::nullopt);
  engine_.on("GET /metrics", 200,
             other +
                 "vllm:generation_tokens_total{engine=\"0\"} 1.5e1\n"
                 "vllm:generation_tokens_total{engine=\"1\"} 7.0\n");
  EXPECT_EQ(progress(), 22);
  engine_.on("GET /metrics", 500, "vllm:generation_tokens_total 3\n");
  EXPECT_EQ(progress(), std::nullopt);
}

TEST_F(VllmDriverTest, AnswersBeyondTheLimitAreFailures) {
  engine_.on("GET /is_sleeping", 200, std::string((1 << 20) + 1, ' '));
  message_of([&] { sleep(); }, ExitStatus::kSoftware);
  const std::string gauges = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n";
  engine_.on("GET /metrics", 200, std::string(2 << 20, '\n') + gauges);
  EXPECT_EQ(is_idle(), true);
  engine_.on("GET /metrics", 200, std::string(4 << 20, '\n') + gauges);
  message_of([&] { is_idle(); }, ExitStatus::kSoftware);
}

}  // namespace
}  // namespace fo::engine
