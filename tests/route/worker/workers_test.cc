#include "route/worker/workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fo::test {
namespace {

using route::choose_set;
using route::SetKey;
using route::Workers;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

route::WorkerPtr worker_of(const std::string& id, const std::string& model,
                           const std::string& card = "", const std::string& started_at = "") {
  const auto worker = std::make_shared<route::Worker>(id, fleet::Health{});
  worker->model = model;
  worker->card = card;
  worker->started_at = started_at;
  return worker;
}

TEST(Workers, AreInTheSetOfTheirModelAndCard) {
  Workers workers;
  workers.add(worker_of("a", "llama", "1"));
  workers.add(worker_of("b", "llama", "1"));
  workers.add(worker_of("c", "llama", "2"));
  EXPECT_EQ(workers.set({"llama", "1"}).size(), 2U);
  EXPECT_EQ(workers.set({"llama", "2"}).size(), 1U);
  EXPECT_THAT(workers.set({"llama", ""}), IsEmpty());
  EXPECT_NE(workers.find("a")->number, workers.find("b")->number);
  EXPECT_EQ(workers.find("d"), nullptr);
}

TEST(Workers, AWorkerJoinsASetOnceItsModelIsKnown) {
  Workers workers;
  const auto worker = worker_of("a", "");
  workers.add(worker);
  EXPECT_THAT(workers.models(), IsEmpty());
  worker->model = "llama";
  workers.regroup(worker);
  EXPECT_THAT(workers.models(), ElementsAre("llama"));
  // A card that changes moves it.
  worker->card = "2";
  workers.regroup(worker);
  EXPECT_THAT(workers.set({"llama", ""}), IsEmpty());
  EXPECT_EQ(workers.set({"llama", "2"}).size(), 1U);
}

TEST(Workers, ASetForDecodeNeedsAWorkerForPrefill) {
  Workers workers;
  const SetKey key{"llama", ""};
  const auto decode = worker_of("a", "llama");
  decode->role = route::Role::kDecode;
  decode->name_space = "fleet";
  decode->kv_abi = "1";
  workers.add(decode);
  EXPECT_TRUE(workers.lacks_prefill(key));
  EXPECT_FALSE(workers.lacks_prefill({"another", ""}));
  const auto prefill = worker_of("b", "llama");
  prefill->role = route::Role::kPrefill;
  prefill->name_space = "fleet";
  prefill->kv_abi = "1";
  prefill->is_reachable = true;
  workers.add(prefill);
  EXPECT_EQ(workers.set(key).size(), 1U) << "it gets no requests";
  EXPECT_FALSE(workers.lacks_prefill(key));
  const auto lacks_with = [&](std::string route::Worker::*field) {
    const std::string before = std::exchange((*prefill).*field, "other");
    const bool lacks = workers.lacks_prefill(key);
    (*prefill).*field = before;
    return lacks;
  };
  EXPECT_TRUE(lacks_with(&route::Worker::kv_abi));
  EXPECT_TRUE(lacks_with(&route::Worker::name_space)) << "it is of another cohort";
  EXPECT_TRUE(lacks_with(&route::Worker::model));
  prefill->is_reachable = false;
  EXPECT_TRUE(workers.lacks_prefill(key));
  // A worker for both answers alone.
  workers.add(worker_of("c", "llama"));
  EXPECT_FALSE(workers.lacks_prefill(key));
}

TEST(Workers, ARemovedWorkerLeavesItsSet) {
  Workers workers;
  const auto worker = worker_of("a", "llama");
  workers.add(worker);
  workers.remove("a");
  workers.remove("a");
  EXPECT_TRUE(worker->is_removed);
  EXPECT_THAT(workers.models(), IsEmpty());
  EXPECT_THAT(workers.all(), IsEmpty());
  // The same id may come back, as another worker.
  workers.add(worker_of("a", "llama"));
  EXPECT_NE(workers.find("a")->number, worker->number);
}

TEST(Workers, AdaptersAreModels) {
  Workers workers;
  const auto worker = worker_of("a", "llama");
  worker->other_models = {"adapter"};
  workers.add(worker);
  workers.add(worker_of("b", "llama", "2"));
  EXPECT_THAT(workers.models(), ElementsAre("adapter", "llama"));
  EXPECT_THAT(workers.sets_of("adapter"), ElementsAre(Pair(SetKey{"llama", ""}, 1)));
}

TEST(Workers, TheSetOfTheOldestWorkerHasAllWithoutWeights) {
  Workers workers;
  workers.add(worker_of("a", "llama", "1", "2026-03-01T00:00:00Z"));
  workers.add(worker_of("b", "llama", "2", "2026-02-01T00:00:00Z"));
  workers.add(worker_of("c", "llama", "1", "2026-02-15T00:00:00Z"));
  EXPECT_THAT(workers.sets_of("llama"),
              ElementsAre(Pair(SetKey{"llama", "1"}, 0), Pair(SetKey{"llama", "2"}, 1)));
  workers.remove("b");
  EXPECT_THAT(workers.sets_of("llama"), ElementsAre(Pair(SetKey{"llama", "1"}, 1)));
  EXPECT_THAT(workers.sets_of("another"), IsEmpty());
}

TEST(Workers, AWorkerThatMayHaveEndedIsTheOldestOnlyIfThereIsNoOther) {
  Workers workers;
  const route::WorkerPtr ended = worker_of("a", "llama", "1", "2026-01-01T00:00:00Z");
  ended->may_have_ended = true;
  workers.add(ended);
  EXPECT_THAT(workers.sets_of("llama"), ElementsAre(Pair(SetKey{"llama", "1"}, 1)));
  workers.add(worker_of("b", "llama", "2", "2026-03-01T00:00:00Z"));
  EXPECT_THAT(workers.sets_of("llama"),
              ElementsAre(Pair(SetKey{"llama", "1"}, 0), Pair(SetKey{"llama", "2"}, 1)));
}

TEST(Workers, WeightsAreThoseOfTheRegistry) {
  Workers workers;
  workers.add(worker_of("a", "llama", "1", "2026-01-01T00:00:00Z"));
  workers.add(worker_of("b", "llama", "2", "2026-02-01T00:00:00Z"));
  workers.set_weights("llama", route::CardWeights{{"2", 9}, {"3", 1}});
  EXPECT_THAT(workers.sets_of("llama"),
              ElementsAre(Pair(SetKey{"llama", "1"}, 0), Pair(SetKey{"llama", "2"}, 9)));
  workers.set_weights("llama", std::nullopt);
  EXPECT_THAT(workers.sets_of("llama"),
              ElementsAre(Pair(SetKey{"llama", "1"}, 1), Pair(SetKey{"llama", "2"}, 0)));
}

TEST(ChooseSet, ByWeightAmongThoseThatAreUsable) {
  const std::vector<std::pair<SetKey, double>> sets{
      {{"m", "a"}, 1}, {{"m", "b"}, 0}, {{"m", "c"}, 3}};
  const auto all = [](const SetKey&) { return true; };
  EXPECT_EQ(choose_set(sets, all, true, 0)->card, "a");
  EXPECT_EQ(choose_set(sets, all, true, 0.24)->card, "a");
  EXPECT_EQ(choose_set(sets, all, true, 0.26)->card, "c");
  EXPECT_EQ(choose_set(sets, all, true, 0.999999)->card, "c");
  const auto not_a = [](const SetKey& key) { return key.card != "a"; };
  EXPECT_EQ(choose_set(sets, not_a, false, 0)->card, "c");
}

TEST(ChooseSet, ASetWithoutWeightTakesOverOnlyIfItMay) {
  const std::vector<std::pair<SetKey, double>> sets{{{"m", "a"}, 1}, {{"m", "b"}, 0}};
  const auto only_b = [](const SetKey& key) { return key.card == "b"; };
  EXPECT_EQ(choose_set(sets, only_b, false, 0.5), std::nullopt);
  EXPECT_EQ(choose_set(sets, only_b, true, 0.5)->card, "b");
  const auto none = [](const SetKey&) { return false; };
  EXPECT_EQ(choose_set(sets, none, true, 0.5), std::nullopt);
}

}  // namespace
}  // namespace fo::test
