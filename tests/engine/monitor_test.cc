#include "engine/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>

#include "base/error.h"
#include "engine/stand_in.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "support/fds.h"
#include "support/ports.h"

namespace fo::engine {
namespace {

using namespace std::chrono_literals;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;
using Answer = std::optional<std::string>;

/// Gives the queued answers in order, and then reports success.
class FakeDriver : public EngineDriver {
 public:
  explicit FakeDriver(test::TestLoop& loop) : released(loop.io().get_executor()) {}

  awaitable<Answer> check_health(Deadline) override {
    ++asked;
    while (hangs) co_await released.wait();
    const Answer reason = next(health);
    if (reason == "throw") throw Error(ExitStatus::kConfig, "never works");
    co_return reason;
  }
  awaitable<void> prove(Deadline) override {
    ++proven;
    co_await loop::pause_for(1ms);  // the loop continues meanwhile, as with any engine
    const Answer reason = mute ? "mute" : next(proofs);
    if (reason) throw Error(ExitStatus::kTryAgain, *reason);
    co_return;
  }
  awaitable<void> sleep(Deadline, SleepMode) override { co_return; }
  awaitable<void> wake(Deadline) override { co_return; }
  awaitable<std::optional<bool>> is_idle(Deadline) override { co_return std::nullopt; }
  awaitable<std::optional<double>> progress(Deadline) override {
    if (generated) *generated += each_time;
    co_return generated;
  }

  std::deque<Answer> health;
  std::deque<Answer> proofs;
  int asked = 0;
  int proven = 0;
  bool hangs = false;
  bool mute = false;
  std::optional<double> generated;
  double each_time = 0;
  loop::Event released;

 private:
  static Answer next(std::deque<Answer>& answers) {
    if (answers.empty()) return std::nullopt;
    const Answer answer = answers.front();
    answers.pop_front();
    return answer;
  }
};

class MonitorTest : public test::FdCounting {
 protected:
  MonitorTest() {
    options_.health_interval = 1ms;
    options_.health_timeout = 10s;
    options_.prove_interval = 1h;
    options_.prove_timeout = 10s;
  }
  ~MonitorTest() override { stop(); }

  void make() {
    monitor_ = std::make_unique<Monitor>(loop_.io().get_executor(), driver_, options_);
  }
  /// Runs beside the test; the result is in ended_.
  void start() {
    if (!monitor_) make();
    ended_.reset();
    loop::spawn(loop_.io(), run(this));
  }
  static awaitable<void> run(MonitorTest* self) {
    co_await self->monitor_->begin();
    const std::string verdict = co_await self->monitor_->run();
    self->ended_ = verdict;
  }
  void stop() {
    driver_.hangs = false;
    driver_.released.notify();
    if (monitor_ && !ended_) loop_.run(monitor_->stop());
  }
  std::string verdict() {
    loop_.run_until([this] { return ended_.has_value(); });
    return ended_.value_or("");
  }
  void after_rounds(int count) {
    const int wanted = driver_.asked + count;
    loop_.run_until([&] { return driver_.asked >= wanted || ended_; });
  }
  HealthFacts facts() const {
    HealthFacts facts;
    monitor_->tell(facts);
    return facts;
  }

  test::TestLoop loop_;
  MonitorOptions options_;
  FakeDriver driver_{loop_};
  std::unique_ptr<Monitor> monitor_;
  std::optional<std::string> ended_ = "";
};

TEST_F(MonitorTest, AnEngineThatIsWellIsWatchedUntilStopped) {
  options_.prove_interval = 1ms;
  start();
  loop_.run_until([&] { return driver_.asked > 3 && driver_.proven > 3; });
  EXPECT_FALSE(ended_);
  EXPECT_TRUE(facts().engine_ready);
  EXPECT_TRUE(facts().endpoints.at("generate"));
  stop();
  EXPECT_EQ(verdict(), "");
}

TEST_F(MonitorTest, NothingIsReadyBeforeAnybodyLooked) {
  options_.targets = {{"api", "http://127.0.0.1:9/"}};
  make();
  EXPECT_FALSE(facts().endpoints.at("generate"));
  EXPECT_FALSE(facts().endpoints.at("api"));
  EXPECT_THAT(facts().targets, testing::ElementsAre("api"));
}

TEST_F(MonitorTest, FailuresInARowEndIt) {
  driver_.health = {"a", "b", "c", "d"};
  start();
  EXPECT_EQ(verdict(), "c");
  EXPECT_EQ(driver_.asked, 3);
  EXPECT_EQ(driver_.proven, 0);
}

TEST_F(MonitorTest, TheLastFailureIsToldWithoutAnotherInterval) {
  options_.health_interval = 1h;
  options_.failures = 1;
  driver_.health = {"a"};
  start();
  EXPECT_EQ(verdict(), "a");
}

TEST_F(MonitorTest, OneGoodAnswerStartsTheCountAnew) {
  driver_.health = {"a", "b", std::nullopt, "c", "d", "e"};
  start();
  EXPECT_EQ(verdict(), "e");
  EXPECT_EQ(driver_.asked, 6);
}

TEST_F(MonitorTest, AHealthCheckThatThrowsIsAFailure) {
  driver_.health = {"throw", "throw", "throw"};
  start();
  EXPECT_EQ(verdict(), "never works");
}

TEST_F(MonitorTest, GenerationsThatFailEndItBehindAHealthyCheck) {
  options_.prove_interval = 1ms;
  options_.health_interval = 1h;
  driver_.proofs = {std::nullopt, "a", "b", "c"};
  start();
  EXPECT_EQ(verdict(), "c");
  EXPECT_EQ(driver_.proven, 4);
}

TEST_F(MonitorTest, AGenerationThatFailedIsTriedAgainAfterTheNextHealthCheck) {
  // If each failure waited for the whole interval, the test would time out.
  options_.prove_interval = 400ms;
  options_.failures = 100;
  driver_.proofs = std::deque<Answer>(100, "hangs");
  start();
  EXPECT_EQ(verdict(), "hangs");
  EXPECT_EQ(driver_.proven, 100);
}

TEST_F(MonitorTest, AnEngineThatGeneratesForOthersHasNotHung) {
  options_.prove_interval = 1ms;
  driver_.mute = true;
  driver_.generated = 1;
  driver_.each_time = 1;
  start();
  after_rounds(20);
  EXPECT_FALSE(ended_);
  EXPECT_TRUE(facts().engine_ready);
  driver_.each_time = 0;
  EXPECT_EQ(verdict(), "mute");
}

TEST_F(MonitorTest, FailuresOfOneKindAreNotCountedWithTheOther) {
  options_.prove_interval = 1ms;
  options_.failures = 2;
  for (int i = 0; i < 10; ++i) {
    driver_.health.insert(driver_.health.end(), {"ill", std::nullopt});
    driver_.proofs.insert(driver_.proofs.end(), {"mute", std::nullopt});
  }
  start();
  loop_.run_until([&] { return (driver_.health.empty() && driver_.proofs.empty()) || ended_; });
  EXPECT_FALSE(ended_);
}

TEST_F(MonitorTest, AnErrorIsReportedUntilItIsOver) {
  driver_.health = {"fever"};
  driver_.hangs = true;
  start();
  driver_.hangs = false;
  driver_.released.notify();
  loop_.run_until([&] { return driver_.health.empty(); });
  // The next query is not answered yet.
  driver_.hangs = true;
  EXPECT_FALSE(facts().engine_ready);
  EXPECT_EQ(facts().reason, "fever");
  driver_.hangs = false;
  after_rounds(2);
  EXPECT_TRUE(facts().engine_ready);
  EXPECT_EQ(facts().reason, "");
}

TEST_F(MonitorTest, AHealthyCheckDoesNotHideThatNothingIsGenerated) {
  options_.prove_interval = 1ms;
  options_.failures = 1'000'000'000;
  driver_.mute = true;
  start();
  loop_.run_until([&] { return driver_.proven > 0; });
  after_rounds(3);
  EXPECT_FALSE(facts().engine_ready);
  EXPECT_FALSE(facts().endpoints.at("generate"));
  EXPECT_EQ(facts().reason, "mute");
  driver_.mute = false;
  loop_.run_until([&] { return facts().engine_ready; });
  EXPECT_TRUE(facts().endpoints.at("generate"));
}

// As after a process was suspended for long.
TEST_F(MonitorTest, AnEngineThatWasNotProvenForLongIsNotReady) {
  options_.prove_interval = 10ms;
  options_.prove_timeout = 10ms;
  driver_.hangs = true;
  start();
  loop_.run_until([&] { return !facts().endpoints.at("generate"); });
  EXPECT_FALSE(facts().endpoints.at("generate"));
  EXPECT_FALSE(facts().engine_ready);
  EXPECT_EQ(facts().reason, "no generation was proven for 30ms");
  driver_.hangs = false;
  driver_.released.notify();
  loop_.run_until([&] { return facts().engine_ready; });
}

TEST_F(MonitorTest, TargetsAreReadyWhenTheyAnswer200) {
  test::StandIn target(loop_);
  target.on("GET /ok", 200, "");
  target.on("GET /busy", 503, "");
  const test::ReservedPort closed;
  options_.targets = {
      {"ok", target.url() + "/ok"}, {"busy", target.url() + "/busy"}, {"closed", closed.url()}};
  start();
  loop_.run_until([&] { return facts().endpoints.at("ok"); });
  EXPECT_FALSE(facts().endpoints.at("busy"));
  EXPECT_FALSE(facts().endpoints.at("closed"));
  target.on("GET /ok", 500, "");
  target.on("GET /busy", 200, "");
  // A round may have begun before.
  loop_.run_until([&] { return facts().endpoints.at("busy") && !facts().endpoints.at("ok"); });
  EXPECT_TRUE(facts().endpoints.at("busy"));
  EXPECT_FALSE(facts().endpoints.at("ok"));
  // Targets decide about readiness, not about failure.
  EXPECT_FALSE(ended_);
  stop();
}

TEST_F(MonitorTest, ATargetThatHangsIsNotReady) {
  test::StandIn target(loop_);
  target.hang("GET /");
  options_.targets = {{"api", target.url()}};
  options_.health_timeout = 20ms;
  start();
  after_rounds(3);
  EXPECT_FALSE(facts().endpoints.at("api"));
  EXPECT_TRUE(facts().engine_ready);
  stop();
}

TEST_F(MonitorTest, StopWaitsForTheQuestionThatIsBeingAsked) {
  driver_.hangs = true;
  start();
  loop_.run_until([&] { return driver_.asked == 1; });
  bool stopped = false;
  loop::spawn(loop_.io(), monitor_->stop(), [&](const std::exception_ptr&) { stopped = true; });
  loop_.run_ready();
  EXPECT_FALSE(stopped);
  driver_.hangs = false;
  driver_.released.notify();
  loop_.run_until([&] { return stopped; });
  EXPECT_EQ(verdict(), "");
}

TEST_F(MonitorTest, RunsAgainWithNothingHeldAgainstTheEngine) {
  driver_.health = {"a", "b"};
  start();
  loop_.run_until([&] { return driver_.asked >= 2; });
  stop();
  EXPECT_EQ(verdict(), "");
  driver_.health = {"c", "d", std::nullopt};
  start();
  after_rounds(3);
  EXPECT_FALSE(ended_);
}

}  // namespace
}  // namespace fo::engine
