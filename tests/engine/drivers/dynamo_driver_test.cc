#include "engine/drivers/driver_test.h"

namespace fo::engine {
namespace {

using base::ExitStatus;
using test::failure_of;
using testing::ElementsAre;
using testing::EndsWith;

class DynamoDriverTest : public test::DriverTest {
 protected:
  DynamoDriverTest() {
    options_.kind = EngineKind::kDynamo;
    options_.system_url = worker_.url();
    use(options_);
  }

  test::StandIn worker_{loop_};
  DriverOptions options_;
};

TEST_F(DynamoDriverTest, SleepsAndWakesByControlRoutes) {
  worker_.on("POST /engine/control/sleep", 200, R"({"status":"ok"})");
  worker_.on("POST /engine/control/wake_up", 200, R"({"status":"ok"})");
  sleep();
  wake();
  EXPECT_THAT(worker_.asked, ElementsAre(R"(POST /engine/control/sleep {"level":1})",
                                         "POST /engine/control/wake_up {}"));
}

TEST_F(DynamoDriverTest, FallsBackToTheOlderRoutes) {
  worker_.on("POST /engine/sleep", 200, R"({"status":"ok"})");
  worker_.on("POST /engine/wake_up", 200, "");
  sleep();
  wake();
  EXPECT_THAT(
      worker_.asked,
      ElementsAre(R"(POST /engine/control/sleep {"level":1})", R"(POST /engine/sleep {"level":1})",
                  "POST /engine/control/wake_up {}", "POST /engine/wake_up {}"));
}

TEST_F(DynamoDriverTest, AnErrorInsideOf200IsAFailure) {
  const std::string error = R"({"status":"error","message":"no GMS"})";
  worker_.on("POST /engine/control/sleep", 200, error);
  worker_.on("POST /engine/wake_up", 200, error);
  const auto asleep = failure_of([&] { sleep(); });
  EXPECT_EQ(asleep.status, ExitStatus::kSoftware);
  EXPECT_EQ(asleep.message,
            "put the engine to sleep: POST " + worker_.url() + "/engine/control/sleep: no GMS");
  // The worker may have fallen asleep.
  const auto awake = failure_of([&] { wake(); });
  EXPECT_EQ(awake.status, ExitStatus::kSoftware);
  EXPECT_THAT(awake.message, EndsWith("/engine/wake_up: no GMS"));
}

TEST_F(DynamoDriverTest, ARefusalIsAFailure) {
  worker_.on("POST /engine/control/sleep", 500, R"({"error":"handler failed"})");
  const auto failure = failure_of([&] { sleep(); });
  EXPECT_EQ(failure.status, ExitStatus::kSoftware);
  EXPECT_THAT(failure.message, EndsWith("status 500: handler failed"));
}

TEST_F(DynamoDriverTest, AWorkerWithoutTheRoutesIsAConfigurationError) {
  EXPECT_EQ(failure_of([&] { sleep(); }).status, ExitStatus::kConfig);
  EXPECT_EQ(failure_of([&] { wake(); }).status, ExitStatus::kConfig);
}

TEST_F(DynamoDriverTest, HealthIsTheStatusServers) {
  worker_.on("GET /health", 200, R"({"status":"ready"})");
  EXPECT_EQ(check_health(), std::nullopt);
  worker_.on("GET /health", 503, R"({"status":"notready"})");
  EXPECT_NE(check_health(), std::nullopt);
}

TEST_F(DynamoDriverTest, ProvesByTheGenerateEndpoint) {
  worker_.on("GET /health", 200, R"({"endpoints":{"other":"notready","generate":"ready"}})");
  prove();
  worker_.on("GET /health", 200, R"({"status":"ready","endpoints":{"generate":"notready"}})");
  const auto failure = failure_of([&] { prove(); });
  EXPECT_EQ(failure.status, ExitStatus::kSoftware);
  EXPECT_THAT(failure.message, EndsWith("endpoint 'generate' is 'notready'"));
  worker_.on("GET /health", 503, R"({"endpoints":{"generate":"ready"}})");
  EXPECT_EQ(failure_of([&] { prove(); }).status, ExitStatus::kSoftware);
}

TEST_F(DynamoDriverTest, AnAnswerWithoutTheGenerateEndpointProvesNothing) {
  for (const char* body :
       {"", "[]", R"("ready")", R"({"status":"ready"})", R"({"endpoints":{}})",
        R"({"endpoints":{"other":"ready"}})", R"({"endpoints":[]})",
        R"({"endpoints":{"generate":true}})", R"({"endpoints":{"generate":"ready")"}) {
    worker_.on("GET /health", 200, body);
    const auto failure = failure_of([&] { prove(); });
    EXPECT_EQ(failure.status, ExitStatus::kSoftware);
    EXPECT_THAT(
        failure.message,
        EndsWith("its health has no endpoint 'generate'; use a command to prove it instead"));
  }
}

TEST_F(DynamoDriverTest, AnswersThatNestWithoutEndEndNobody) {
  const std::string deep = test::nested_lists();
  worker_.on("GET /health", 200, R"({"endpoints":{"generate":)" + deep + "}}");
  EXPECT_EQ(failure_of([&] { prove(); }).status, ExitStatus::kSoftware);
  worker_.on("POST /engine/control/sleep", 500, R"({"error":)" + deep + "}");
  EXPECT_EQ(failure_of([&] { sleep(); }).status, ExitStatus::kSoftware);
  worker_.on("POST /engine/control/sleep", 200, R"({"status":)" + deep + "}");
  sleep();
}

TEST_F(DynamoDriverTest, SleepingTwiceIsOneSleepAndWakingTwiceOneWake) {
  worker_.on("POST /engine/control/sleep", 200, R"({"status":"ok"})");
  worker_.on("POST /engine/control/wake_up", 200, R"({"status":"ok"})");
  wake();
  EXPECT_TRUE(worker_.asked.empty());
  sleep();
  sleep();
  wake();
  wake();
  EXPECT_EQ(worker_.asked.size(), 2u);
}

TEST_F(DynamoDriverTest, AStepThatFailedIsTakenAgainAndTakenBack) {
  worker_.on("POST /engine/control/sleep", 200, R"({"status":"error"})");
  worker_.on("POST /engine/control/wake_up", 200, R"({"status":"ok"})");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(failure_of([&] { sleep(); }).status, ExitStatus::kSoftware);
  }
  wake();
  EXPECT_EQ(worker_.asked.size(), 3u);
}

TEST_F(DynamoDriverTest, WithACommandForOneStepTheOtherIsAlwaysDone) {
  worker_.on("POST /engine/control/wake_up", 200, R"({"status":"ok"})");
  options_.sleep_command = "true";
  use(options_);
  sleep();
  wake();
  sleep();
  wake();
  EXPECT_EQ(worker_.asked.size(), 2u);
}

TEST_F(DynamoDriverTest, WeightsThatAreDroppedNeedACommandToWake) {
  options_.sleep_level = 2;
  EXPECT_EQ(failure_of([&] { use(options_); }).status, ExitStatus::kUsage);
  options_.wake_command = "true";
  use(options_);
  worker_.on("POST /engine/control/sleep", 200, R"({"status":"ok"})");
  sleep();
  EXPECT_THAT(worker_.asked, ElementsAre(R"(POST /engine/control/sleep {"level":2})"));
}

TEST_F(DynamoDriverTest, TellsNeitherWhetherItIsIdleNorHowFarItIs) {
  EXPECT_EQ(is_idle(), std::nullopt);
  EXPECT_EQ(progress(), std::nullopt);
  EXPECT_TRUE(worker_.asked.empty());
}

}  // namespace
}  // namespace fo::engine
