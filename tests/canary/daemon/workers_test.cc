#include "canary/daemon/workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "canary/watched.h"

namespace fo::canary {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

// Why these files are refused; empty if they are not.
std::string files_refusal(std::vector<CanaryFile> files) {
  try {
    Workers workers({.writer = "test"}, std::move(files), {});
    EXPECT_EQ(workers.files().size(), 2U);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.status(), base::ExitStatus::kUsage);
    return error.what();
  }
  return {};
}

TEST(Workers, TwoFilesForTheSameWorkersAreRefused) {
  const CanaryFile carded{.model = "a", .card = "sha256:00"};
  EXPECT_EQ(files_refusal({carded, {.model = "b", .card = "sha256:00"}}),
            "canaries for card 'sha256:00': two files apply to the same workers");
  EXPECT_EQ(files_refusal({{.model = "a"}, {.model = "a"}}),
            "canaries for model 'a': two files apply to the same workers");
  EXPECT_EQ(files_refusal({carded, {.model = "a", .card = "sha256:01"}}), "");
  EXPECT_EQ(files_refusal({carded, {.model = "a"}}), "");
  EXPECT_EQ(files_refusal({{.model = "a"}, {.model = "b"}}), "");
}

TEST(Workers, AConvictionInTheRegistryCountsMoreThanAnOlderState) {
  const std::string id(32, 'a');
  Workers workers = no_workers();
  SavedWorkers saved;
  saved[id].baselines.answer = {.average = 1, .count = 7};
  workers.load(std::move(saved), now());
  const fleet::Verdict conviction{.id = id, .health = fleet::HealthState::kConvicted, .weight = 0};
  workers.apply(
      {.record = {.key = fleet::verdict_key(id, "test"), .text = fleet::encode(conviction)}},
      now());
  workers.apply(instance_change(id, "m"), now());
  EXPECT_TRUE(workers.is_convicted(id));
  EXPECT_EQ(workers.all().at(id)->baselines.answer.count, 7U);
}

TEST(Workers, AConvictionInTheRegistryOwesAnAnswerOnlyIfAnAnswerWasWrong) {
  const auto owes_answer = [](std::optional<fleet::Evidence> evidence, bool is_registered) {
    const std::string id(32, 'a');
    Workers workers = no_workers();
    if (is_registered) workers.apply(instance_change(id, "m"), now());
    const fleet::Verdict conviction{.id = id,
                                    .health = fleet::HealthState::kConvicted,
                                    .weight = 0,
                                    .evidence = std::move(evidence)};
    workers.apply(
        {.record = {.key = fleet::verdict_key(id, "test"), .text = fleet::encode(conviction)}},
        now());
    workers.apply(instance_change(id, "m"), now());
    EXPECT_TRUE(workers.is_convicted(id));
    return workers.all().at(id)->owes_answer;
  };
  for (const bool is_registered : {false, true}) {
    EXPECT_FALSE(owes_answer({}, is_registered));
    EXPECT_TRUE(owes_answer(fleet::Evidence{.canary = "rivers", .expected = "7", .got = "8"},
                            is_registered));
  }
}

class WorkersOfASet : public testing::Test {
 protected:
  static constexpr int kWorkers = 4;
  WorkersOfASet() {
    for (int n = 0; n < kWorkers; ++n) {
      workers_.apply(instance_change(id_of(n), "m", fleet::Life::kReady, "sha256:00", url_of(n)),
                     at_);
    }
  }
  static std::string url_of(int n) { return "http://127.0.0.1:" + std::to_string(n + 1) + "/"; }
  static std::string id_of(int n) { return std::string(31, '0') + static_cast<char>('0' + n); }
  Worker& worker(int n) { return *workers_.all().at(id_of(n)); }

  void find(int n, Finding finding, int times = 1) {
    for (int i = 0; i < times; ++i) {
      workers_.find(worker(n), finding, {.reason = "because"}, at_);
    }
  }
  void goes_down(int n) {
    worker(n).is_down = true;
    find(n, Finding::kFault, 3);
  }
  std::vector<double> weights() {
    std::vector<double> weights;
    for (const auto& [id, worker] : workers_.all()) weights.push_back(worker->weight);
    return weights;
  }

  Now at_{.steady = std::chrono::seconds(100), .wall = text::WallTime(std::chrono::hours(24))};
  Workers workers_ = no_workers();
};

TEST_F(WorkersOfASet, HalfOfItStaysInIfAllAreDown) {
  for (int n = 0; n < kWorkers; ++n) goes_down(n);
  EXPECT_EQ(workers_.kept_in(), 2U);
  EXPECT_THAT(weights(), UnorderedElementsAre(0, 0, 0.5, 0.5));
}

TEST_F(WorkersOfASet, ALoneWorkerThatIsDownStaysIn) {
  for (int n = 1; n < kWorkers; ++n) workers_.apply(gone_change(id_of(n)), at_);
  goes_down(0);
  EXPECT_EQ(worker(0).health.state(), fleet::HealthState::kUnhealthy);
  EXPECT_THAT(weights(), ElementsAre(0.5));
}

// As a pod behind two Services.
TEST_F(WorkersOfASet, AWorkerWithTwoRecordsStaysUntilBothAreGone) {
  const auto change_of = [&](const std::string& name_space, fleet::Life life) {
    fleet::RegistryChange change = instance_change(id_of(0), "m", life, "sha256:00", url_of(0));
    change.record.key = fleet::instance_key({name_space, "worker", "generate"}, id_of(0));
    return change;
  };
  const fleet::RegistryChange second = change_of("headless", fleet::Life::kDraining);
  const auto ends = [&](const std::string& key) {
    workers_.apply({.kind = fleet::RegistryChange::Kind::kGone, .record = {.key = key, .text = {}}},
                   at_);
    return !workers_.all().contains(id_of(0));
  };
  find(0, Finding::kFault);
  const WorkerPtr before = workers_.all().at(id_of(0));
  workers_.apply(second, at_);
  EXPECT_EQ(before->life, fleet::Life::kDraining);
  EXPECT_FALSE(ends(second.record.key));
  EXPECT_EQ(workers_.all().at(id_of(0)), before);
  EXPECT_EQ(before->life, fleet::Life::kReady);
  // A record that is not in use ends nothing.
  EXPECT_FALSE(ends(second.record.key));
  workers_.apply(second, at_);
  workers_.apply(change_of("dynamo", fleet::Life::kGone), at_);
  EXPECT_EQ(before->life, fleet::Life::kDraining);
  EXPECT_TRUE(ends(second.record.key));
}

TEST_F(WorkersOfASet, AStaleWorkerThatRefusesConnectionsHasEndedAfterATime) {
  const auto is_removed_after = [&](std::chrono::seconds time) {
    at_.steady += time;
    const WorkerPtr one = workers_.all().at(id_of(0));
    workers_.remove_ended(*one, at_);
    return one->is_removed;
  };
  worker(0).refused_since = at_.steady;
  EXPECT_FALSE(is_removed_after(std::chrono::hours(2))) << "its record is present";
  workers_.apply(stale_change(id_of(0)), at_);
  workers_.apply(instance_change(id_of(0), "m"), at_);
  EXPECT_FALSE(is_removed_after(std::chrono::hours(2))) << "its record is present again";
  worker(0).refused_since.reset();
  workers_.apply(stale_change(id_of(0)), at_);
  EXPECT_FALSE(is_removed_after(std::chrono::minutes(50))) << "it answers";
  worker(0).refused_since = at_.steady;
  EXPECT_FALSE(is_removed_after(std::chrono::seconds(9))) << "its standby may take over";
  EXPECT_TRUE(is_removed_after(std::chrono::seconds(1)));
  EXPECT_EQ(workers_.all().size(), kWorkers - 1U);
  // What the registry reports of it later changes nothing, until it registers again.
  workers_.apply(stale_change(id_of(0)), at_);
  workers_.apply(gone_change(id_of(0)), at_);
  EXPECT_EQ(workers_.all().size(), kWorkers - 1U);
  workers_.apply(instance_change(id_of(0), "m"), at_);
  EXPECT_FALSE(worker(0).stale_since);
}

TEST_F(WorkersOfASet, AStaleWorkerIsForgottenAfterAnHourAndItsSetIsThatOfTheOthers) {
  for (const int n : {0, 1}) {
    goes_down(n);
    workers_.apply(stale_change(id_of(n)), at_);
  }
  goes_down(2);
  EXPECT_THAT(weights(), UnorderedElementsAre(0, 0, 0.5, 1));
  at_.steady += std::chrono::hours(1);
  for (const int n : {0, 1}) {
    const WorkerPtr one = workers_.all().at(id_of(n));
    workers_.remove_ended(*one, at_);
    EXPECT_TRUE(one->is_removed);
  }
  EXPECT_THAT(weights(), ElementsAre(0, 1));
}

TEST_F(WorkersOfASet, AWorkerIsStaleOnceAllItsRecordsAre) {
  fleet::RegistryChange second = instance_change(id_of(0), "m");
  second.record.key = fleet::instance_key({"headless", "worker", "generate"}, id_of(0));
  workers_.apply(second, at_);
  workers_.apply(stale_change(id_of(0)), at_);
  EXPECT_FALSE(worker(0).stale_since);
  second.kind = fleet::RegistryChange::Kind::kGone;
  workers_.apply(second, at_);
  EXPECT_TRUE(worker(0).stale_since);
}

TEST_F(WorkersOfASet, AWorkerThatStartsIsNoMember) {
  for (int n = 1; n < kWorkers; ++n) {
    workers_.apply(instance_change(id_of(n), "m", fleet::Life::kStarting), at_);
  }
  goes_down(0);
  EXPECT_THAT(weights(), ElementsAre(0.5, 1, 1, 1));
}

TEST_F(WorkersOfASet, TokensThatComeMakeABusyWorkerHealthyAgain) {
  find(0, Finding::kFault);
  workers_.find_tokens(worker(0), at_);
  EXPECT_EQ(worker(0).health.state(), fleet::HealthState::kSuspicious);
  workers_.find_tokens(worker(0), at_);
  EXPECT_EQ(worker(0).health.state(), fleet::HealthState::kHealthy);
}

TEST_F(WorkersOfASet, TokensThatComeDoNotMakeUpForAWrongAnswer) {
  const Cause cause{.reason = "drift"};
  const auto tokens_come = [&] {
    for (int i = 0; i < 10; ++i) workers_.find_tokens(worker(0), at_);
  };
  workers_.find_answer(worker(0), {.finding = Finding::kFault, .cause = cause}, at_);
  workers_.find_answer(worker(0), {.finding = Finding::kNeutral}, at_);
  tokens_come();
  EXPECT_EQ(worker(0).health.state(), fleet::HealthState::kSuspicious);
  // Nor do they begin to count faults in a row again.
  workers_.find_answer(worker(0), {.finding = Finding::kFault, .cause = cause}, at_);
  tokens_come();
  workers_.find_answer(worker(0), {.finding = Finding::kFault, .cause = cause}, at_);
  EXPECT_EQ(worker(0).health.state(), fleet::HealthState::kUnhealthy);

  workers_.find_answer(worker(1), {.finding = Finding::kFault, .cause = cause}, at_);
  workers_.find_answer(worker(1), {.finding = Finding::kPass}, at_);
  tokens_come();
  workers_.find_tokens(worker(1), at_);
  EXPECT_EQ(worker(1).health.state(), fleet::HealthState::kHealthy);
}

TEST_F(WorkersOfASet, ARestartKeepsWhetherAnAnswerIsOwed) {
  find(0, Finding::kFault);
  workers_.find_answer(worker(1), {.finding = Finding::kFault, .attempt = {.uses_sampler = true}},
                       at_);
  Workers after = no_workers();
  after.load(parse_state(encode(workers_.save(at_)), "/s"), at_);
  for (const int n : {0, 1}) after.apply(instance_change(id_of(n), "m"), at_);
  const auto restored = [&](int n) -> Worker& { return *after.all().at(id_of(n)); };
  EXPECT_FALSE(restored(0).owes_answer);
  EXPECT_TRUE(restored(1).owes_answer);
  EXPECT_TRUE(restored(1).owes_sampler);
  for (const int n : {0, 1}) {
    for (int i = 0; i < 2; ++i) after.find_tokens(restored(n), at_);
  }
  EXPECT_EQ(restored(0).health.state(), fleet::HealthState::kHealthy);
  EXPECT_EQ(restored(1).health.state(), fleet::HealthState::kSuspicious);
}

TEST_F(WorkersOfASet, ACheckThatMakesUpForAFailureOfTheSamplerRunsIt) {
  Worker& one = worker(0);
  EXPECT_FALSE(one.runs_sampler(0.25, 0));
  one.canaries->file.has_sampler = true;
  EXPECT_TRUE(one.runs_sampler(0.25, 0.2));
  EXPECT_FALSE(one.runs_sampler(0.25, 0.3));
  workers_.find_answer(one, {.finding = Finding::kFault}, at_);
  EXPECT_FALSE(one.runs_sampler(0.25, 0.3));
  workers_.find_answer(one, {.finding = Finding::kFault, .attempt = {.uses_sampler = true}}, at_);
  EXPECT_TRUE(one.runs_sampler(0.25, 0.3));
  // A check that fails before it comes to the sampler.
  workers_.find_answer(one, {.finding = Finding::kFault}, at_);
  EXPECT_TRUE(one.runs_sampler(0.25, 0.3));
  workers_.find_answer(one, {.finding = Finding::kPass}, at_);
  EXPECT_FALSE(one.runs_sampler(0.25, 0.3));
}

TEST_F(WorkersOfASet, WhereNoQuestionCanBeAskedTokensAreEnough) {
  workers_.find_answer(worker(0), {.finding = Finding::kFault, .cause = {.reason = "drift"}}, at_);
  worker(0).canaries->is_stale = true;
  for (int i = 0; i < 2; ++i) workers_.find_tokens(worker(0), at_);
  EXPECT_EQ(worker(0).health.state(), fleet::HealthState::kHealthy);
}

TEST_F(WorkersOfASet, IdsThatDoNotComeBackAreNotKeptForEver) {
  SavedWorkers saved{{std::string(32, 'a'), {}}, {std::string(32, 'b'), {}}};
  saved.at(std::string(32, 'b')).gone_since = at_.wall - kKeptFor / 2;
  workers_.load(saved, at_);
  EXPECT_EQ(workers_.save(at_).size(), kWorkers + 2U);
  at_.wall += kKeptFor / 2 + std::chrono::hours(1);
  EXPECT_EQ(workers_.save(at_).size(), kWorkers + 1U);
  // One that is registered is kept.
  at_.wall += 2 * kKeptFor;
  EXPECT_EQ(workers_.save(at_).size(), std::size_t{kWorkers});
}

TEST_F(WorkersOfASet, AConvictedWorkerDoesNotJudge) {
  const auto jurors = [&] {
    std::set<std::string> ids;
    for (const WorkerPtr& juror : workers_.jurors_of(worker(0), kMaxJurors, at_)) {
      ids.insert(juror->id);
    }
    return ids;
  };
  EXPECT_THAT(jurors(), ElementsAre(id_of(1), id_of(2), id_of(3)));
  find(1, Finding::kConviction);
  // By at least half of all canaries.
  const auto says = [&](const std::string& writer, fleet::Verdict verdict) {
    verdict.since = at_.wall;
    if (!verdict.is_conviction()) verdict.expires = at_.wall + std::chrono::hours(1);
    workers_.apply(
        {.record = {.key = fleet::verdict_key(verdict.id, writer), .text = fleet::encode(verdict)}},
        at_);
  };
  const auto is_removed = [&](const std::string& writer) {
    workers_.apply({.kind = fleet::RegistryChange::Kind::kGone,
                    .record = {.key = fleet::verdict_key(id_of(2), writer), .text = ""}},
                   at_);
  };
  const fleet::Verdict conviction{
      .id = id_of(2), .health = fleet::HealthState::kConvicted, .weight = 0};
  const fleet::Verdict other{.id = id_of(3), .health = fleet::HealthState::kHealthy, .weight = 1};
  says("a", conviction);
  says("b", conviction);
  says("c", other);
  EXPECT_THAT(jurors(), ElementsAre(id_of(3)));
  is_removed("a");
  EXPECT_THAT(jurors(), ElementsAre(id_of(3)));
  says("d", other);
  EXPECT_THAT(jurors(), ElementsAre(id_of(2), id_of(3)));
  says("a", conviction);
  EXPECT_THAT(jurors(), ElementsAre(id_of(3)));
  is_removed("a");
  is_removed("b");
  EXPECT_THAT(jurors(), ElementsAre(id_of(2), id_of(3)));
}

TEST_F(WorkersOfASet, TwoIdsOfOneEngineHaveOneVote) {
  const auto moves_to = [&](int n, const std::string& url) {
    workers_.apply(instance_change(id_of(n), "m", fleet::Life::kReady, "sha256:00", url), at_);
  };
  moves_to(2, "http://127.0.0.1:2");
  EXPECT_EQ(workers_.jurors_of(worker(0), kMaxJurors, at_).size(), 2U);
  moves_to(3, "http://127.0.0.1:1");
  EXPECT_EQ(workers_.jurors_of(worker(0), kMaxJurors, at_).size(), 1U);
}

// Why the worker is not checked; else the model of its file.
std::string file_for(std::vector<CanaryFile> files, const std::string& model,
                     const std::string& card) {
  Workers workers = workers_with(std::move(files));
  const std::string id(32, '1');
  workers.apply(instance_change(id, model, fleet::Life::kReady, card), {});
  const Worker& worker = *workers.all().at(id);
  EXPECT_EQ(worker.canaries == nullptr, !worker.unchecked.empty());
  return worker.canaries == nullptr ? worker.unchecked : worker.canaries->file.model;
}

TEST(WorkersOfFiles, AWorkerIsAskedTheFileOfItsCardOrElseOfItsModel) {
  const CanaryFile carded{.model = "a", .card = "sha256:00"};
  EXPECT_EQ(file_for({carded, {.model = "b"}}, "b", "sha256:00"), "a");
  EXPECT_EQ(file_for({carded, {.model = "b"}}, "b", ""), "b");
  EXPECT_EQ(file_for({carded, {.model = "b"}}, "a", ""), "no canaries for its model 'a'");
  EXPECT_EQ(file_for({carded, {.model = "b"}}, "b", "sha256:01"),
            "no canaries for its card 'sha256:01'");
}

TEST(WorkersOfFiles, AWorkerWithoutNamesIsAskedTheOnlyFileWithoutACard) {
  const CanaryFile carded{.model = "a", .card = "sha256:00"};
  EXPECT_EQ(file_for({carded, {.model = "b"}}, "", ""), "b");
  EXPECT_EQ(file_for({carded}, "", ""), "it names neither a card nor a model");
  EXPECT_EQ(file_for({{.model = "a"}, {.model = "b"}}, "", ""),
            "it names neither a card nor a model, and several files are without a card");
}

}  // namespace
}  // namespace fo::canary
