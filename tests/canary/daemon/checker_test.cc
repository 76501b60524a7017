#include "canary/daemon/checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "canary/oracles.h"
#include "canary/watched.h"

namespace fo::canary {
namespace {

using fo::oracle::Fault;
using fo::oracle::Knobs;
using fo::oracle::test::RunningOracle;
using std::chrono::milliseconds;

const Knobs kWrong{.fail = {.kind = Fault::Kind::kWrong, .first = 2, .last = 2}};

/// Three engines, of which a test registers some as workers of one set, and a checker of them.
class CheckerOfOracles : public testing::Test {
 protected:
  CheckerOfOracles() : workers_(watch_often(), {file_of_oracles()}, events()) {
    CheckerOptions options;
    options.rules.probe_timeout = std::chrono::seconds(30);
    options.first_token = std::chrono::seconds(30);
    options.retry_pause = milliseconds(1);
    options.hung_after = std::chrono::seconds(30);
    make(options);
  }
  ~CheckerOfOracles() override {
    while (!workers_.all().empty()) remove(workers_.all().begin()->first);
    loop_.run_to_end();
  }

  static WorkersOptions watch_often() {
    WorkersOptions options{.writer = "test"};
    options.takeover = milliseconds(20);
    options.intervals = {.connect = milliseconds(2),
                         .health = milliseconds(2),
                         .progress = milliseconds(2),
                         .token = milliseconds(4),
                         .content = milliseconds(8),
                         .content_of_suspect = milliseconds(4)};
    return options;
  }
  Workers::Events events() {
    return {.on_new = [this](const WorkerPtr& worker) { checker_->watch(worker); },
            .on_removed = [this](const WorkerPtr& worker) { checker_->on_removed(worker); },
            .on_verdict = [](const std::string&) {}};
  }
  void make(const CheckerOptions& options) {
    checker_ = std::make_unique<Checker>(loop_.io().get_executor(), options, workers_,
                                         [this](const std::string& id) { ++checked_[id]; });
  }

  static std::string id_of(std::size_t n) { return std::string(32, static_cast<char>('a' + n)); }
  void add(std::size_t n, const std::string& url, const std::string& card = "") {
    workers_.apply(instance_change(id_of(n), "oracle", fleet::Life::kReady, card, url), now());
  }
  void add(std::size_t n) { add(n, oracles_.at(n).url()); }
  void add_all() {
    for (std::size_t n = 0; n < oracles_.size(); ++n) add(n);
  }
  void remove(const std::string& id) { workers_.apply(gone_change(id), now()); }
  Worker& worker(std::size_t n) { return *workers_.all().at(id_of(n)); }
  void run_until_passed(Step step) {
    SCOPED_TRACE(to_string(step));
    loop_.run_until([&] { return workers_.check_counts().contains({step, Outcome::kPass}); });
  }
  // Calls `done` after each step of the loop.
  void step_until(const std::function<bool()>& done) {
    const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(60));
    while (!done()) {
      ASSERT_FALSE(deadline.expired());
      loop_.io().restart();
      loop_.io().run_one_until(*deadline.at());
    }
  }
  bool is_any_convicted() {
    return std::ranges::any_of(
        workers_.all(), [&](const auto& entry) { return workers_.is_convicted(entry.first); });
  }

  fo::test::TestLoop loop_;
  std::array<RunningOracle, 3> oracles_;
  std::map<std::string, int> checked_;
  std::unique_ptr<Checker> checker_;
  Workers workers_;
};

TEST_F(CheckerOfOracles, AGoodWorkerPasses) {
  add(0);
  for (const Step step : {Step::kConnect, Step::kHealth, Step::kProgress, Step::kContent}) {
    run_until_passed(step);
  }
  loop_.run_until([&] { return checked_[id_of(0)] >= 2; });
  EXPECT_EQ(worker(0).health.state(), fleet::HealthState::kHealthy);
  EXPECT_EQ(worker(0).weight, 1);
}

TEST_F(CheckerOfOracles, AWorkerWithoutCanariesIsAskedForAToken) {
  add(0, oracles_[0].url(), "sha256:00");
  run_until_passed(Step::kToken);
  EXPECT_EQ(worker(0).canaries, nullptr);
  EXPECT_FALSE(workers_.check_counts().contains({Step::kContent, Outcome::kPass}));
}

TEST_F(CheckerOfOracles, WrongTokensAreConvictedByTheOthers) {
  oracles_[0].set(kWrong);
  add_all();
  loop_.run_until([&] { return workers_.is_convicted(id_of(0)); });
  EXPECT_FALSE(workers_.is_convicted(id_of(1)));
  EXPECT_FALSE(workers_.is_convicted(id_of(2)));
  EXPECT_EQ(workers_.decisions(Decision::kConviction), 1U);
  EXPECT_TRUE(worker(0).owes_answer);
}

TEST_F(CheckerOfOracles, AWrongSamplerIsConvictedToo) {
  oracles_[1].set({.wrong_sampler = true});
  CheckerOptions options;
  options.retry_pause = milliseconds(1);
  options.sampler_part = 1;
  make(options);
  add_all();
  loop_.run_until([&] { return workers_.is_convicted(id_of(1)); });
  EXPECT_TRUE(worker(1).owes_sampler);
  EXPECT_FALSE(workers_.is_convicted(id_of(0)));
}

TEST_F(CheckerOfOracles, ALoneWorkerIsNotConvicted) {
  oracles_[0].set(kWrong);
  add(0);
  loop_.run_until([&] { return workers_.decisions(Decision::kUndecided) >= 2; });
  EXPECT_FALSE(is_any_convicted());
  EXPECT_NE(worker(0).health.state(), fleet::HealthState::kHealthy);
}

TEST_F(CheckerOfOracles, ASetThatIsWrongInOneWayMakesTheCanariesStale) {
  for (RunningOracle& oracle : oracles_) oracle.set(kWrong);
  add_all();
  const Canaries& canaries = *workers_.files().front();
  loop_.run_until([&] { return canaries.is_stale; });
  EXPECT_GE(workers_.decisions(Decision::kStale), 1U);
  for (RunningOracle& oracle : oracles_) oracle.set({});
  loop_.run_until([&] { return !canaries.is_stale; });
  EXPECT_FALSE(is_any_convicted());
}

TEST_F(CheckerOfOracles, AVoteConvictsNoWorkerIfTheModelOfTheSetChangesMeanwhile) {
  oracles_[0].set(kWrong);
  add_all();
  const auto has_vote = [&] {
    return std::ranges::count(worker(0).checks, Outcome::kMismatch,
                              [](const CheckRecord& check) { return check.attempt.outcome; }) == 2;
  };
  step_until(has_vote);
  // No juror has answered yet.
  for (const bool is_stale : {true, false}) worker(0).canaries->set_stale(is_stale);
  step_until([&] { return checked_[id_of(0)] > 0; });
  EXPECT_FALSE(is_any_convicted());
}

TEST_F(CheckerOfOracles, AWorkerThatIsDownIsAskedNothing) {
  add(0, "http://127.0.0.1:1");
  loop_.run_until([&] { return worker(0).health.state() == fleet::HealthState::kUnhealthy; });
  EXPECT_TRUE(worker(0).is_down);
  ASSERT_FALSE(worker(0).checks.empty());
  for (const CheckRecord& check : worker(0).checks) {
    EXPECT_EQ(check.step, Step::kConnect);
    EXPECT_EQ(check.attempt.outcome, Outcome::kDown);
  }
}

TEST_F(CheckerOfOracles, AWorkerThatCrashedIsForgottenIfItsAddressRefusesConnections) {
  add(0);
  add(1, "http://127.0.0.1:1");
  add(2, "http://127.0.0.1:1");
  for (const std::size_t n : {0U, 1U}) workers_.apply(stale_change(id_of(n)), now());
  loop_.run_until([&] { return !workers_.all().contains(id_of(1)); });
  run_until_passed(Step::kContent);
  EXPECT_TRUE(workers_.all().contains(id_of(0))) << "it answers";
  EXPECT_TRUE(workers_.all().contains(id_of(2))) << "it is not stale";
}

TEST_F(CheckerOfOracles, AWorkerThatIsRemovedDuringAQuestionIsLeftAlone) {
  CheckerOptions options;
  options.first_token = options.rules.timeout = milliseconds(200);
  make(options);
  oracles_[0].set({.fail = {.kind = Fault::Kind::kStall, .at_start = true}});
  add(0);
  loop_.run_until([&] { return oracles_[0].counts().faults > 0; });
  const WorkerPtr removed = workers_.all().at(id_of(0));
  const std::size_t checks = removed->checks.size();
  remove(id_of(0));
  // Its coroutine ends with the question.
  loop_.run_to_end();
  EXPECT_EQ(removed->checks.size(), checks);
  EXPECT_EQ(checked_[id_of(0)], 0);
}

}  // namespace
}  // namespace fo::canary
