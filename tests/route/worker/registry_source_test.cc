#include "route/worker/registry_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "loop/event.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "route/queue/dispatcher.h"
#include "support/failure.h"
#include "support/stderr_text.h"

namespace fo::test {
namespace {

using boost::asio::awaitable;
using fleet::Record;
using fleet::RegistryChange;
using route::RegistrySource;
using route::SetKey;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using ChangeKind = RegistryChange::Kind;

const std::string kFirst(32, 'a');
const std::string kSecond(32, 'b');

fleet::Instance instance_of(const std::string& id) {
  fleet::Instance instance;
  instance.id = id;
  instance.url = "http://10.0.0.1:8000/engine";
  instance.model = "llama";
  instance.card = "sha256:1";
  instance.life = fleet::Life::kReady;
  instance.slots = 100;
  instance.kv_tokens = 5000;
  instance.started_at = "2026-01-01T00:00:00Z";
  instance.labels = {{"group", "west"}};
  return instance;
}

Record record_of(const fleet::Instance& instance,
                 const fleet::EndpointId& endpoint = {"llama", "worker", "generate"}) {
  return {fleet::instance_key(endpoint, instance.id), fleet::encode(instance)};
}

class RegistrySourceTest : public testing::Test {
 protected:
  explicit RegistrySourceTest(std::optional<std::uint64_t> routers = {})
      : source_(options(routers), workers_,
                {.on_new = [this](const auto& worker) { log_.push_back("new " + worker->id); },
                 .on_change = [this] { log_.emplace_back("change"); },
                 .on_removed =
                     [this](const auto& worker) { log_.push_back("removed " + worker->id); }}) {}

  static route::SourceOptions options(std::optional<std::uint64_t> routers) {
    route::SourceOptions options;
    options.namespaces = {*fleet::NamespacePattern::parse("llama"),
                          *fleet::NamespacePattern::parse("llama-headless")};
    options.routers = routers;
    return options;
  }
  void put(const Record& record) { source_.apply({.kind = ChangeKind::kPut, .record = record}); }
  void put(const fleet::Instance& instance) { put(record_of(instance)); }
  void apply(ChangeKind kind, const std::string& key) {
    source_.apply({.kind = kind, .record = {.key = key, .text = ""}});
  }
  std::vector<std::string> log() { return std::exchange(log_, {}); }

  route::Workers workers_;
  std::vector<std::string> log_;
  RegistrySource source_;
};

TEST_F(RegistrySourceTest, ARecordIsAWorker) {
  put(instance_of(kFirst));
  EXPECT_THAT(log(), ElementsAre("new " + kFirst));
  const route::WorkerPtr worker = workers_.find(kFirst);
  ASSERT_NE(worker, nullptr);
  EXPECT_EQ(worker->model, "llama");
  EXPECT_EQ(worker->base_path, "/engine");
  EXPECT_EQ(worker->origin.address.host, "10.0.0.1");
  EXPECT_EQ(worker->slots, 100U);
  EXPECT_EQ(worker->kv_tokens, 5000U);
  EXPECT_EQ(worker->group, "west");
  EXPECT_EQ(workers_.set({"llama", "sha256:1"}).size(), 1U);
}

TEST_F(RegistrySourceTest, AWorkersNameLeadsOnlyToAllowedAddresses) {
  fleet::Instance instance = instance_of(kFirst);
  instance.url = "http://engine.example:8000";
  put(instance);
  const auto networks = workers_.find(kFirst)->origin.networks;
  ASSERT_NE(networks, nullptr);
  EXPECT_TRUE(networks->contains(boost::asio::ip::make_address("10.0.0.1")));
  EXPECT_FALSE(networks->contains(boost::asio::ip::make_address("8.8.8.8")));
  route::SourceOptions anywhere = options({});
  anywhere.allowed = fleet::AllowedWorkers(fleet::kAnyNetwork);
  source_.set_options(anywhere);
  EXPECT_EQ(workers_.find(kFirst)->origin.networks, anywhere.allowed.networks());
}

TEST_F(RegistrySourceTest, TheEndOfTheListingIsAChange) {
  source_.apply({.kind = ChangeKind::kListed});
  EXPECT_THAT(log(), ElementsAre("change"));
}

TEST_F(RegistrySourceTest, AChangeOfARecordKeepsTheWorker) {
  fleet::Instance instance = instance_of(kFirst);
  put(instance);
  const route::WorkerPtr worker = workers_.find(kFirst);
  instance.life = fleet::Life::kDraining;
  instance.card = "sha256:2";
  instance.labels.clear();
  put(instance);
  EXPECT_THAT(log(), ElementsAre("new " + kFirst, "change"));
  EXPECT_EQ(workers_.find(kFirst), worker);
  EXPECT_EQ(worker->life, fleet::Life::kDraining);
  EXPECT_TRUE(worker->drains_itself);
  EXPECT_EQ(worker->group, "");
  EXPECT_EQ(workers_.set({"llama", "sha256:2"}).size(), 1U);
}

TEST_F(RegistrySourceTest, OnlyWorkersThatGenerateInItsNamespacesTakeRequests) {
  put(record_of(instance_of(kFirst), {"another", "worker", "generate"}));
  put(record_of(instance_of(kFirst), {"llama", "frontend", "generate"}));
  put(record_of(instance_of(kFirst), {"llama", "worker", "metrics"}));
  EXPECT_THAT(workers_.all(), IsEmpty());
  put(record_of(instance_of(kFirst), {"llama", "worker-decode", "generate"}));
  EXPECT_EQ(workers_.sets().size(), 1U);
  put(record_of(instance_of(kSecond), {"llama", "worker-prefill", "generate"}));
  EXPECT_EQ(workers_.all().size(), 2U);
  EXPECT_EQ(workers_.set({"llama", "sha256:1"}).size(), 1U);
}

TEST_F(RegistrySourceTest, WorkersForPrefillAndDecodePairByTheirRecords) {
  fleet::Instance decode = instance_of(kFirst);
  decode.kv_abi = "nixl/fp8";
  put(record_of(decode, {"llama", "worker-decode", "generate"}));
  fleet::Instance prefill = instance_of(kSecond);
  const auto lacks_prefill = [&](const char* kv_abi) {
    prefill.kv_abi = kv_abi;
    put(record_of(prefill, {"llama", "worker-prefill", "generate"}));
    workers_.find(kSecond)->is_reachable = true;
    return workers_.lacks_prefill({"llama", "sha256:1"});
  };
  EXPECT_TRUE(lacks_prefill("nixl/fp16"));
  EXPECT_FALSE(lacks_prefill("nixl/fp8"));
}

TEST_F(RegistrySourceTest, AStaleWorkerStays) {
  put(instance_of(kFirst));
  apply(ChangeKind::kStale, record_of(instance_of(kFirst)).key);
  EXPECT_THAT(log(), ElementsAre("new " + kFirst, "change"));
  EXPECT_TRUE(workers_.find(kFirst)->is_stale);
  put(instance_of(kFirst));
  EXPECT_FALSE(workers_.find(kFirst)->is_stale);
  apply(ChangeKind::kStale, record_of(instance_of(kSecond)).key);
}

TEST_F(RegistrySourceTest, AWorkerThatIsGoneIsRemoved) {
  put(instance_of(kFirst));
  put(instance_of(kSecond));
  apply(ChangeKind::kGone, record_of(instance_of(kFirst)).key);
  fleet::Instance instance = instance_of(kSecond);
  instance.life = fleet::Life::kGone;
  put(instance);
  EXPECT_THAT(log(), ElementsAre("new " + kFirst, "new " + kSecond, "removed " + kFirst, "change",
                                 "removed " + kSecond, "change"));
  EXPECT_THAT(workers_.all(), IsEmpty());
  apply(ChangeKind::kGone, record_of(instance).key);
  EXPECT_THAT(log(), IsEmpty());
}

// As a pod behind two Services.
TEST_F(RegistrySourceTest, AWorkerWithTwoRecordsStaysUntilBothAreGone) {
  const std::string key = record_of(instance_of(kFirst)).key;
  const Record other = record_of(instance_of(kFirst), {"llama-headless", "worker", "generate"});
  put(instance_of(kFirst));
  put(other);
  apply(ChangeKind::kGone, key);
  EXPECT_NE(workers_.find(kFirst), nullptr);
  // The end of a record that was not used ends nothing.
  apply(ChangeKind::kStale, key);
  apply(ChangeKind::kGone, key);
  ASSERT_NE(workers_.find(kFirst), nullptr);
  EXPECT_FALSE(workers_.find(kFirst)->is_stale);
  apply(ChangeKind::kGone, other.key);
  EXPECT_THAT(workers_.all(), IsEmpty());
}

TEST_F(RegistrySourceTest, AnInvalidRecordChangesNothing) {
  put(instance_of(kFirst));
  log();
  const Record valid = record_of(instance_of(kFirst));
  put(Record{valid.key, "{}"});
  put(Record{valid.key, "not JSON"});
  fleet::Instance instance = instance_of(kFirst);
  // Cloud providers serve credentials there.
  instance.url = "http://169.254.169.254/latest";
  instance.card = "sha256:3";
  put(instance);
  instance.url = "https://10.0.0.1:8000";
  put(instance);
  EXPECT_THAT(log(), IsEmpty());
  EXPECT_EQ(workers_.find(kFirst)->url, instance_of(kFirst).url);
  EXPECT_EQ(workers_.find(kFirst)->card, "sha256:1");
}

TEST_F(RegistrySourceTest, RoutersShareTheSlots) {
  put(instance_of(kFirst));
  fleet::Instance without = instance_of(kSecond);
  without.slots.reset();
  put(without);
  EXPECT_EQ(workers_.find(kSecond)->slots, 256U);
  put(Record{"routers/" + kFirst, "{}"});
  EXPECT_EQ(workers_.find(kFirst)->slots, 100U) << "that is this router";
  put(Record{"routers/" + kSecond, "{}"});
  put(Record{"routers/" + kSecond, "{}"});
  EXPECT_EQ(workers_.find(kFirst)->slots, 50U);
  EXPECT_EQ(workers_.find(kSecond)->slots, 128U);
  // It may still send requests.
  apply(ChangeKind::kStale, "routers/" + kSecond);
  EXPECT_EQ(workers_.find(kFirst)->slots, 50U);
  apply(ChangeKind::kGone, "routers/" + kSecond);
  EXPECT_EQ(workers_.find(kFirst)->slots, 100U);
}

TEST_F(RegistrySourceTest, ARouterThatHasVanishedKeepsItsShareForATime) {
  put(instance_of(kFirst));
  const std::string other = "routers/" + kSecond;
  put(Record{"routers/" + kFirst, "{}"});
  put(Record{other, "{}"});
  text::WallTime wall = std::chrono::system_clock::now();
  const auto slots_after = [&](std::chrono::seconds time) {
    source_.on_tick(wall, base::Deadline::Clock::now() + time);
    return workers_.find(kFirst)->slots;
  };
  constexpr std::chrono::minutes kLong(5);
  apply(ChangeKind::kStale, other);
  EXPECT_EQ(slots_after(std::chrono::seconds(30)), 50U) << "it may still send requests";
  wall += kLong;
  EXPECT_EQ(slots_after(std::chrono::seconds(30)), 50U) << "the wall clock was set";
  put(Record{other, "{}"});
  EXPECT_EQ(slots_after(kLong), 50U);
  apply(ChangeKind::kStale, other);
  apply(ChangeKind::kStale, "routers/" + kFirst);
  EXPECT_EQ(slots_after(kLong), 50U) << "the registry is out of reach";
  put(Record{"routers/" + kFirst, "{}"});
  log();
  EXPECT_EQ(slots_after(kLong), 100U);
  EXPECT_THAT(log(), ElementsAre("change"));
}

awaitable<void> place(route::Dispatcher& dispatcher, route::Job& job) {
  co_await dispatcher.place(job);
}

TEST_F(RegistrySourceTest, AnotherRouterHasItsShareAtOnce) {
  TestLoop loop;
  route::Metrics metrics;
  route::Workers workers;
  route::Dispatcher dispatcher(loop.io().get_executor(), {}, workers, metrics);
  RegistrySource source(options({}), workers,
                        {.on_new = [](const auto& worker) { worker->is_reachable = true; },
                         .on_change = [&] { dispatcher.on_change(); },
                         .on_removed = [](const auto&) {}});
  const auto apply = [&](ChangeKind kind, const Record& record) {
    source.apply({.kind = kind, .record = record});
    loop.run_ready();
  };
  fleet::Instance instance = instance_of(kFirst);
  instance.slots = 2;
  apply(ChangeKind::kPut, {"routers/" + kFirst, "{}"});
  apply(ChangeKind::kPut, record_of(instance));
  dispatcher.on_change();
  apply(ChangeKind::kPut, {"routers/" + kSecond, "{}"});
  route::Job first("first", {}, {});
  route::Job second("second", {}, {});
  for (route::Job* const job : {&first, &second}) {
    job->model = "llama";
    loop::spawn(loop.io(), place(dispatcher, *job));
    loop.run_ready();
  }
  EXPECT_NE(first.worker, nullptr);
  EXPECT_EQ(second.worker, nullptr);
  apply(ChangeKind::kGone, {"routers/" + kSecond, ""});
  EXPECT_NE(second.worker, nullptr);
  for (route::Job* const job : {&first, &second}) dispatcher.release(*job);
}

class ThousandRouters : public RegistrySourceTest {
 protected:
  ThousandRouters() : RegistrySourceTest(1000) {}
};

TEST_F(ThousandRouters, AWorkerHasASlotForEach) {
  put(instance_of(kFirst));
  EXPECT_EQ(workers_.find(kFirst)->slots, 1U);
}

TEST_F(RegistrySourceTest, WeightsOfSets) {
  put(instance_of(kFirst));
  const std::string key = "weights/llama";
  put(Record{key, R"({"version":1,"sha256:1":0.25,"sha256:2":-1,"sha256:3":"1"})"});
  EXPECT_THAT(workers_.sets_of("llama"), ElementsAre(Pair(SetKey{"llama", "sha256:1"}, 0.25)));
  EXPECT_THAT(workers_.weights().at("llama"),
              ElementsAre(Pair("sha256:1", 0.25), Pair("sha256:2", 0)));
  apply(ChangeKind::kGone, key);
  EXPECT_THAT(workers_.weights(), IsEmpty());
  // A model's name is one segment of the key.
  put(Record{"weights/meta%2Fllama", R"({"sha256:1":1})"});
  EXPECT_TRUE(workers_.weights().contains("meta/llama"));
}

TEST_F(RegistrySourceTest, AKeyWithAnInvalidEscapeIsTheNameOfAModelAsItIs) {
  source_.apply(
      {.kind = ChangeKind::kPut, .record = {.key = "weights/%zz%2", .text = R"({"sha256:1":1})"}});
  EXPECT_TRUE(workers_.weights().contains("%zz%2"));
}

TEST_F(RegistrySourceTest, ASavedListingIsReadAsStale) {
  put(instance_of(kFirst));
  put(instance_of(kSecond));
  apply(ChangeKind::kGone, record_of(instance_of(kSecond)).key);
  const std::string saved = source_.save();

  route::Workers workers;
  const auto ignore = [](const route::WorkerPtr&) {};
  RegistrySource source(options({}), workers,
                        {.on_new = ignore, .on_change = [] {}, .on_removed = ignore});
  source.load(saved);
  ASSERT_EQ(workers.all().size(), 1U);
  EXPECT_TRUE(workers.find(kFirst)->is_stale);
  EXPECT_EQ(workers.find(kFirst)->slots, 100U);
  EXPECT_FALSE(source.is_listed());
  for (const char* text : {"", "{}", R"({"instances":[]})"}) {
    EXPECT_EQ(status_of([&] { source.load(text); }), base::ExitStatus::kBadData) << text;
  }
}

// --- verdicts

class RegistryVerdicts : public RegistrySourceTest {
 protected:
  RegistryVerdicts() {
    put(instance_of(kFirst));
    log();
  }

  static fleet::Verdict verdict(fleet::HealthState health, double weight) {
    fleet::Verdict verdict;
    verdict.id = kFirst;
    verdict.health = health;
    verdict.weight = weight;
    verdict.reason = "as tested";
    verdict.since = now();
    if (!verdict.is_conviction()) verdict.expires = now() + std::chrono::hours(1);
    return verdict;
  }
  static fleet::Verdict suspicion() { return verdict(fleet::HealthState::kSuspicious, 0.5); }
  static fleet::Verdict conviction() { return verdict(fleet::HealthState::kConvicted, 0); }
  static text::WallTime now() { return std::chrono::system_clock::now(); }
  static Record record_of(const fleet::Verdict& verdict, const char* writer) {
    return {fleet::verdict_key(verdict.id, writer), fleet::encode(verdict)};
  }
  void say(const char* writer, const fleet::Verdict& verdict) { put(record_of(verdict, writer)); }
  [[nodiscard]] const route::Worker& worker() const { return *workers_.find(kFirst); }
};

TEST_F(RegistryVerdicts, ChangeTheirWorker) {
  say("c1", suspicion());
  EXPECT_THAT(log(), ElementsAre("change"));
  EXPECT_EQ(worker().verdict.weight, 0.5);
  say("c1", suspicion());
  say("c2", verdict(fleet::HealthState::kHealthy, 1));
  EXPECT_THAT(log(), IsEmpty()) << "nothing else has changed";
  say("c2", conviction());
  EXPECT_THAT(log(), ElementsAre("change"));
  EXPECT_TRUE(worker().is_convicted());
  apply(ChangeKind::kGone, fleet::verdict_key(kFirst, "c2"));
  EXPECT_THAT(log(), ElementsAre("change"));
  EXPECT_EQ(worker().verdict.weight, 0.5);
  apply(ChangeKind::kGone, fleet::verdict_key(kFirst, "c1"));
  EXPECT_EQ(worker().verdict.health, std::nullopt);
}

TEST_F(RegistryVerdicts, ExpireWithoutAChangeOfARecord) {
  put(instance_of(kSecond));
  say("c1", suspicion());
  log();
  source_.on_tick(now(), {});
  EXPECT_THAT(log(), IsEmpty());
  source_.on_tick(now() + std::chrono::hours(2), {});
  EXPECT_THAT(log(), ElementsAre("change"));
  EXPECT_EQ(worker().verdict.weight, 1);
  EXPECT_EQ(worker().verdict.health, std::nullopt);
}

TEST_F(RegistryVerdicts, MayComeBeforeTheirWorker) {
  fleet::Verdict early = conviction();
  early.id = kSecond;
  say("c1", early);
  EXPECT_THAT(log(), IsEmpty());
  put(instance_of(kSecond));
  EXPECT_TRUE(workers_.find(kSecond)->is_convicted());
}

TEST_F(RegistryVerdicts, AnInvalidOneIsOneWarningAndChangesNothing) {
  say("c1", conviction());
  log();
  const StderrText logged;
  put(Record{fleet::verdict_key(kFirst, "c1"), R"({"id":")" + kFirst + R"(","weight":1})"});
  EXPECT_THAT(log(), IsEmpty());
  EXPECT_TRUE(worker().is_convicted());
  const std::string text = logged.text();
  EXPECT_THAT(text, testing::HasSubstr("/c1': missing health\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(RegistryVerdicts, AreLoggedWhenTheyTurn) {
  const StderrText logged;
  say("c1", verdict(fleet::HealthState::kHealthy, 1));
  EXPECT_EQ(logged.text(), "");
  for (int i = 0; i < 2; ++i) {
    say("c1", suspicion());
    say("c1", suspicion());
    say("c1", verdict(fleet::HealthState::kHealthy, 1));
  }
  const std::string text = logged.text();
  EXPECT_THAT(text, testing::HasSubstr("worker '" + kFirst + "': verdict suspicious: as tested\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

/// A registry that cannot be reached at first, and then has these records.
class LateRegistry : public fleet::Registry {
 public:
  LateRegistry(boost::asio::any_io_executor executor, std::vector<Record> records)
      : never_(executor), records_(std::move(records)) {}

  awaitable<void> watch(std::string prefix,
                        std::function<void(const RegistryChange&)> on_change) override {
    if (++attempts_ < 3) {
      throw base::Error(base::ExitStatus::kUnavailable, "no connection");
    }
    for (const Record& record : records_) {
      if (record.key.starts_with(prefix)) on_change({.kind = ChangeKind::kPut, .record = record});
    }
    on_change({.kind = ChangeKind::kListed});
    co_await never_.wait();
  }
  [[nodiscard]] int attempts() const { return attempts_; }

  awaitable<std::vector<Record>> list(std::string, base::Deadline) override {
    co_return std::vector<Record>();
  }
  awaitable<std::unique_ptr<fleet::RegisteredRecord>> register_record(Record,
                                                                      base::Deadline) override {
    co_return nullptr;
  }
  awaitable<void> put(Record, base::Deadline) override { co_return; }
  awaitable<bool> edit(std::string, fleet::Edit, base::Deadline) override { co_return false; }
  awaitable<void> edit_or_create(std::string, fleet::Edit, base::Deadline) override { co_return; }
  awaitable<bool> remove(std::string, base::Deadline) override { co_return false; }

 private:
  loop::Event never_;
  const std::vector<Record> records_;
  int attempts_ = 0;
};

/// The next router, which begins with the listing that another one has saved.
struct Next {
  explicit Next(const RegistrySource& before)
      : source({.namespaces = {*fleet::NamespacePattern::parse("llama")}}, workers,
               {.on_new = [](const route::WorkerPtr&) {},
                .on_change = [] {},
                .on_removed = [](const route::WorkerPtr&) {}}) {
    source.load(before.save());
  }
  route::Workers workers;
  RegistrySource source;
};

// Follows the registry until everything is listed.
void follow(TestLoop& loop, RegistrySource& source, fleet::Registry& registry) {
  for (const std::string_view prefix : RegistrySource::kPrefixes) {
    loop::spawn(loop.io(), source.follow(registry, std::string(prefix)));
  }
  loop.run_until([&] { return source.is_listed(); });
}

// Dynamo: etcd_ha.
TEST_F(RegistrySourceTest, ARegistryThatIsAwayIsTriedAgain) {
  put(instance_of(kSecond));
  TestLoop loop;
  LateRegistry registry(loop.io().get_executor(), {record_of(instance_of(kFirst))});
  EXPECT_FALSE(source_.is_listed());
  follow(loop, source_, registry);
  // Two of them failed.
  EXPECT_EQ(registry.attempts(), static_cast<int>(RegistrySource::kPrefixes.size()) + 2);
  EXPECT_NE(workers_.find(kFirst), nullptr);
  EXPECT_NE(workers_.find(kSecond), nullptr);
}

TEST_F(RegistryVerdicts, ASavedConvictionCountsUntilTheRegistryIsListedWithoutIt) {
  fleet::Verdict other = conviction();
  other.id = kSecond;
  put(instance_of(kSecond));
  const std::uint64_t before = source_.changes();
  say("c1", suspicion());
  EXPECT_EQ(source_.changes(), before) << "what expires is not saved";
  say("c1", conviction());
  say("c1", other);
  EXPECT_EQ(source_.changes(), before + 2);

  Next after(source_);
  const route::Workers& workers = after.workers;
  EXPECT_TRUE(workers.find(kFirst)->is_convicted());
  EXPECT_TRUE(workers.find(kSecond)->is_convicted());
  TestLoop loop;
  LateRegistry registry(loop.io().get_executor(), {record_of(other, "c1")});
  follow(loop, after.source, registry);
  EXPECT_FALSE(workers.find(kFirst)->is_convicted()) << "acquitted meanwhile";
  EXPECT_TRUE(workers.find(kSecond)->is_convicted());

  apply(ChangeKind::kGone, fleet::verdict_key(kFirst, "c1"));
  say("c1", suspicion());
  EXPECT_EQ(source_.changes(), before + 3);
}

TEST_F(RegistrySourceTest, SavedWeightsCountUntilTheRegistryIsListedWithoutThem) {
  const Record weights{"weights/llama", R"({"sha256:1":2})"};
  const std::uint64_t before = source_.changes();
  put(weights);
  const Record other{"weights/other", weights.text};
  put(other);
  put(other);
  EXPECT_EQ(source_.changes(), before + 2);

  Next after(source_);
  const route::Workers& workers = after.workers;
  EXPECT_EQ(workers.weights(), workers_.weights());
  TestLoop loop;
  LateRegistry registry(loop.io().get_executor(), {weights});
  follow(loop, after.source, registry);
  EXPECT_THAT(workers.weights(), ElementsAre(Pair("llama", ElementsAre(Pair("sha256:1", 2)))));

  apply(ChangeKind::kGone, "weights/other");
  EXPECT_EQ(source_.changes(), before + 3);
  EXPECT_EQ(source_.save(), after.source.save());
}

TEST_F(RegistrySourceTest, ACardThatIsGoneIsNotSaved) {
  const fleet::Card card;
  const Record record{"cards/" + fleet::checksum(card), fleet::to_json(card).dump()};
  put(record);
  const std::string with_card = source_.save();
  apply(ChangeKind::kGone, record.key);
  EXPECT_NE(source_.save(), with_card);
}

TEST_F(RegistrySourceTest, AWorkerWithANewCardDoesNotKeepTheFactsOfTheOldOne) {
  fleet::Card card;
  put(Record{"cards/" + fleet::checksum(card), fleet::to_json(card).dump()});
  fleet::Instance instance = instance_of(kFirst);
  instance.card = fleet::checksum(card);
  put(instance);
  const route::WorkerPtr worker = workers_.find(kFirst);
  ASSERT_NE(worker->facts, nullptr);
  card.context_length = 100;
  instance.card = fleet::checksum(card);
  put(instance);
  EXPECT_EQ(worker->facts, nullptr);
  put(Record{"cards/" + fleet::checksum(card), fleet::to_json(card).dump()});
  ASSERT_NE(worker->facts, nullptr);
  EXPECT_EQ(worker->facts->context_length, 100U);
}

TEST_F(RegistrySourceTest, NewOptionsJudgeAllRecordsAgain) {
  fleet::Instance remote = instance_of(kSecond);
  remote.url = "http://8.8.8.8:1";
  put(instance_of(kFirst));
  const std::string third(32, 'c');
  put(record_of(instance_of(third), {"other", "worker", "generate"}));
  put(remote);
  const route::WorkerPtr first = workers_.find(kFirst);
  first->is_stale = true;
  EXPECT_THAT(log(), ElementsAre("new " + kFirst));
  // Nothing has changed for a worker that stays.
  source_.set_options(options(2));
  EXPECT_EQ(workers_.find(kFirst), first);
  EXPECT_EQ(first->slots, 50U);
  EXPECT_THAT(log(), ElementsAre("change"));

  route::SourceOptions others = options({});
  others.namespaces = {*fleet::NamespacePattern::parse("other")};
  source_.set_options(others);
  EXPECT_THAT(log(), ElementsAre("removed " + kFirst, "change", "new " + third, "change"));
  ASSERT_NE(workers_.find(third), nullptr);
  EXPECT_EQ(workers_.find(third)->slots, 100U);

  route::SourceOptions anywhere = options({});
  anywhere.allowed = fleet::AllowedWorkers(fleet::kAnyNetwork);
  source_.set_options(anywhere);
  EXPECT_EQ(workers_.all().size(), 2U);
  EXPECT_TRUE(workers_.find(kFirst)->is_stale);
  EXPECT_FALSE(workers_.find(kSecond)->is_stale);
  source_.set_options(options({}));
  EXPECT_EQ(workers_.find(kSecond), nullptr);
  // A record that has vanished meanwhile does not come back.
  apply(ChangeKind::kGone, record_of(remote).key);
  source_.set_options(anywhere);
  EXPECT_EQ(workers_.find(kSecond), nullptr);
}

TEST_F(RegistrySourceTest, NewOptionsThatAllowOneRecordOfAWorkerKeepIt) {
  fleet::Instance local = instance_of(kFirst);
  fleet::Instance remote = instance_of(kFirst);
  remote.url = "http://8.8.8.8:1";
  const fleet::EndpointId other{"llama-headless", "worker", "generate"};
  route::SourceOptions anywhere = options({});
  anywhere.allowed = fleet::AllowedWorkers(fleet::kAnyNetwork);
  route::SourceOptions headless = anywhere;
  headless.namespaces = {*fleet::NamespacePattern::parse("llama-headless")};
  source_.set_options(anywhere);
  put(record_of(remote));
  put(record_of(local, other));
  const route::WorkerPtr worker = workers_.find(kFirst);
  worker->is_stale = true;
  const auto stays = [&](const route::SourceOptions& options) {
    source_.set_options(options);
    return workers_.find(kFirst) == worker && worker->is_stale;
  };
  EXPECT_TRUE(stays(headless));
  EXPECT_EQ(worker->url, local.url);
  EXPECT_EQ(worker->name_space, "llama-headless");
  EXPECT_TRUE(stays(anywhere));
  EXPECT_EQ(worker->url, remote.url);
  EXPECT_TRUE(stays(options({})));
  EXPECT_EQ(worker->url, local.url);
  // The record that is used is the one that has to end.
  apply(ChangeKind::kGone, record_of(remote).key);
  EXPECT_EQ(workers_.find(kFirst), worker);
  headless.namespaces = {*fleet::NamespacePattern::parse("none")};
  source_.set_options(headless);
  EXPECT_THAT(workers_.all(), IsEmpty());
}

TEST_F(RegistrySourceTest, NewRulesOfHealthKeepItsState) {
  put(instance_of(kFirst));
  const route::WorkerPtr worker = workers_.find(kFirst);
  const auto fail = [&] {
    worker->health.apply(fleet::HealthEvent::kFault, std::chrono::seconds(1), 0.5);
    return worker->health.state();
  };
  EXPECT_EQ(fail(), fleet::HealthState::kSuspicious);
  route::SourceOptions strict = options({});
  strict.health.faults_in_row = 2;
  source_.set_options(strict);
  EXPECT_EQ(worker->health.state(), fleet::HealthState::kSuspicious);
  EXPECT_EQ(fail(), fleet::HealthState::kUnhealthy);
}

}  // namespace
}  // namespace fo::test
