// What every registry does, whatever keeps its records.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "etcd/server.h"
#include "fleet/record/instance.h"
#include "fleet/registry/dir_registry.h"
#include "fleet/registry/etcd_registry.h"
#include "fleet/registry/kube/kube_objects.h"
#include "fleet/registry/records.h"
#include "fleet/registry/registry.h"
#include "fleet/registry/uri.h"
#include "fleet/registry/watching.h"
#include "kube/api_server.h"
#include "loop/run.h"
#include "support/failure.h"
#include "support/forked.h"
#include "support/must_run.h"
#include "support/soon.h"
#include "support/temp_dir.h"
#include "support/text_file.h"

namespace fo::fleet {
namespace {

using base::ExitStatus;
using boost::asio::awaitable;
using fo::test::soon;
using fo::test::status_of;
using test::id_number;
using test::kEndpoint;
using test::Maintaining;
using test::record_number;
using test::Watching;

constexpr base::Duration kForLong = std::chrono::minutes(10);
constexpr base::Duration kShortly = std::chrono::seconds(1);

// One kind of registry: how a process opens it, and how its data is lost.
class Place {
 public:
  Place() = default;
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  virtual ~Place() = default;
  /// `ttl`: the time after which a process that does not renew its record is dead, where there is
  /// one.
  [[nodiscard]] virtual std::unique_ptr<Registry> open(base::Duration ttl = kForLong) = 0;
  virtual void lose_everything() = 0;
  /// What a watch reports of a process that was killed.
  [[nodiscard]] virtual std::string killed() const = 0;
};

class DirPlace final : public Place {
 public:
  [[nodiscard]] std::unique_ptr<Registry> open(base::Duration) override {
    return make_dir_registry(folder_.path("registry"));
  }
  void lose_everything() override { std::filesystem::remove_all(folder_.path("registry")); }
  [[nodiscard]] std::string killed() const override { return "gone "; }

 private:
  fo::test::TempDir folder_;
};

class EtcdPlace final : public Place {
 public:
  [[nodiscard]] std::unique_ptr<Registry> open(base::Duration ttl) override {
    EtcdRegistryConfig config;
    config.uri = "etcd:" + etcd_.url() + "/fo";
    config.etcd.servers = {etcd_.url()};
    config.prefix = "fo";
    config.ttl = ttl;
    return make_etcd_registry(std::move(config));
  }
  void lose_everything() override {
    etcd_.kill();
    etcd_.start_without_data();
  }
  [[nodiscard]] std::string killed() const override { return "stale "; }

 private:
  fo::test::TempDir folder_;
  fo::test::Etcd etcd_{folder_};
};

// Runs the calls of a registry, each on a loop of its own. Its parameter is the kind of registry.
class RegistryContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "dir") {
      place_ = std::make_unique<DirPlace>();
    } else if (fo::test::has_etcd()) {
      place_ = std::make_unique<EtcdPlace>();
    } else {
      FO_SKIP("etcd", "etcd is not installed");
    }
    registry_ = place_->open();
  }
  template <typename Result>
  Result run(awaitable<Result> task) {
    return loop::run_to_end(std::move(task));
  }
  std::unique_ptr<RegisteredRecord> register_record(const Record& record) {
    return run(registry_->register_record(record, soon()));
  }
  std::vector<Record> list(const std::string& prefix = "") {
    return run(registry_->list(prefix, soon()));
  }
  bool edit(const std::string& key, const Edit& change) {
    return run(registry_->edit(key, change, soon()));
  }

  std::unique_ptr<Place> place_;
  std::unique_ptr<Registry> registry_;
};

TEST_P(RegistryContract, AKeptRecordIsThereAsLongAsItsKeeper) {
  const Record record = record_number(1);
  const auto registered = register_record(record);
  EXPECT_EQ(list(), std::vector<Record>{record});
  EXPECT_EQ(list("instances/llama/"), std::vector<Record>{record});
  EXPECT_TRUE(list("instances/llam/").empty());
  EXPECT_TRUE(list("cards/").empty());
  run(registered->deregister(soon()));
  EXPECT_TRUE(list().empty());
}

TEST_P(RegistryContract, AKeyIsKeptByOneProcess) {
  const Record record = record_number(1);
  auto registered = register_record(record);
  EXPECT_EQ(status_of([&] { register_record(record); }), ExitStatus::kTryAgain);
  EXPECT_EQ(list().size(), 1U);
  run(registered->deregister(soon()));
  registered = register_record(record);
  EXPECT_EQ(list(), std::vector<Record>{record});
}

TEST_P(RegistryContract, OtherRecordsStayUntilTheyAreRemoved) {
  const Record card{"cards/sha256:0123", R"({"name":"llama"})"};
  run(registry_->put(card, soon()));
  EXPECT_EQ(list("cards/"), std::vector<Record>{card});
  const Record other{card.key, R"({"name":"other"})"};
  run(registry_->put(other, soon()));
  EXPECT_EQ(list("cards/"), std::vector<Record>{other});
  EXPECT_TRUE(run(registry_->remove(card.key, soon())));
  EXPECT_FALSE(run(registry_->remove(card.key, soon())));
  EXPECT_TRUE(list().empty());
}

TEST_P(RegistryContract, ARecordThatAProcessKeepsIsNotRemoved) {
  const Record record = record_number(1);
  const auto registered = register_record(record);
  EXPECT_EQ(status_of([&] { run(registry_->remove(record.key, soon())); }), ExitStatus::kSoftware);
  EXPECT_EQ(list(), std::vector<Record>{record});
}

TEST_P(RegistryContract, RecordsThatAreNoneAreRefused) {
  const std::string id = id_number(1);
  run(register_record(record_number(1))->deregister(soon()));
  const auto refused = [&](const std::string& text) {
    return status_of([&] { register_record({kEndpoint + id, text}); });
  };
  EXPECT_EQ(refused(""), ExitStatus::kBadData);
  EXPECT_EQ(refused("[]"), ExitStatus::kBadData);
  EXPECT_EQ(refused("{}"), ExitStatus::kBadData);
  EXPECT_EQ(refused(R"({"id":1})"), ExitStatus::kBadData);
  EXPECT_EQ(refused(R"({"id":")" + id_number(2) + R"("})"), ExitStatus::kBadData);
  EXPECT_EQ(
      refused(R"({"id":")" + id + R"(","labels":")" + std::string(kMaxRecordBytes, 'x') + R"("})"),
      ExitStatus::kBadData);
  for (const char* key : {"", "instances", "cards/../x", "cards/.x", "cards/a/b", "other/x",
                          "instances/a/b/c", "cards/", "/cards/x"}) {
    EXPECT_EQ(status_of([&] {
                run(registry_->put({key, "{}"}, soon()));
              }),
              ExitStatus::kUsage)
        << key;
    EXPECT_FALSE(run(registry_->remove(key, soon()))) << key;
  }
  EXPECT_TRUE(list().empty());
  const auto registered = register_record(record_number(1));
  EXPECT_EQ(status_of([&] { edit(kEndpoint + id, [](const std::string&) { return "{}"; }); }),
            ExitStatus::kBadData);
  EXPECT_EQ(list(), std::vector<Record>{record_number(1)});
}

TEST_P(RegistryContract, OthersChangeARecordToo) {
  const Record record = record_number(1, Life::kStarting);
  const auto registered = register_record(record);
  EXPECT_TRUE(edit(record.key, drained));
  EXPECT_EQ(life_of(list().at(0).text), Life::kDraining);
  run(registered->edit([](const std::string& text) { return with_life(text, Life::kReady); },
                       soon()));
  EXPECT_EQ(life_of(list().at(0).text), Life::kDraining);
  EXPECT_TRUE(edit(record.key, undrained));
  EXPECT_EQ(life_of(list().at(0).text), Life::kReady);
  EXPECT_FALSE(edit(kEndpoint + id_number(2), drained));
}

TEST_P(RegistryContract, ChangesAtTheSameTimeAreNotLost) {
  constexpr int kWriters = 4;
  constexpr int kChanges = 50;
  const Record record = record_number(1);
  const auto registered = register_record(record);
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      const auto registry = place_->open();
      for (int i = 0; i < kChanges; ++i) {
        const std::string label = std::to_string(writer) + "-" + std::to_string(i);
        loop::run_to_end(registry->edit(
            record.key, [&](const std::string& text) { return with_label(text, label, "x"); },
            soon()));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(decode_instance(list().at(0)).labels.size(), std::size_t{kWriters} * kChanges);
}

TEST_P(RegistryContract, OneOfManyCreatesARecord) {
  constexpr int kWriters = 4;
  constexpr int kRecords = 20;
  const auto key = [](int record) { return "weights/" + std::to_string(record); };
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      const auto registry = place_->open();
      const Edit add = [&](const std::string& text) {
        nlohmann::json weights =
            text.empty() ? nlohmann::json::object() : nlohmann::json::parse(text);
        weights[std::to_string(writer)] = 1;
        return weights.dump();
      };
      for (int record = 0; record < kRecords; ++record) {
        loop::run_to_end(registry->edit_or_create(key(record), add, soon()));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  for (int record = 0; record < kRecords; ++record) {
    const std::vector<Record> records = list(key(record));
    ASSERT_FALSE(records.empty());
    EXPECT_EQ(nlohmann::json::parse(records.at(0).text).size(), std::size_t{kWriters});
  }
}

TEST_P(RegistryContract, AnEmptyTextCreatesNoRecord) {
  const Edit nothing = [](const std::string& text) { return text; };
  run(registry_->edit_or_create("weights/llama", nothing, soon()));
  EXPECT_TRUE(list("weights/").empty());
  EXPECT_EQ(status_of([&] { run(registry_->edit_or_create("../llama", nothing, soon())); }),
            ExitStatus::kUsage);
  EXPECT_EQ(status_of([&] { run(registry_->edit_or_create("routers/r", nothing, soon())); }),
            ExitStatus::kSoftware);
}

TEST_P(RegistryContract, AWatchReportsWhatIsThereAndThenEachChange) {
  auto first = register_record(record_number(1));
  Watching watch(place_->open(), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1));
  const auto second = register_record(record_number(2, Life::kStarting));
  EXPECT_EQ(watch.next(), "put " + id_number(2));
  run(second->edit([](const std::string& text) { return with_life(text, Life::kReady); }, soon()));
  EXPECT_EQ(watch.next(), "put " + id_number(2));
  EXPECT_EQ(life_of(watch.last_text()), Life::kReady);
  run(first->deregister(soon()));
  EXPECT_EQ(watch.next(), "gone " + id_number(1));
  run(second->edit([](const std::string& text) { return with_life(text, Life::kGone); }, soon()));
  EXPECT_EQ(watch.next(), "gone " + id_number(2));
  run(registry_->put({"cards/x", "{}"}, soon()));
  const auto third = register_record(record_number(3));
  EXPECT_EQ(watch.next(), "put " + id_number(3));
}

TEST_P(RegistryContract, AKilledProcessIsGone) {
  Watching watch(place_->open(), "instances/");
  EXPECT_EQ(watch.next(), "listed");
  fo::test::Forked keeper([&](int ready) {
    const auto registered =
        loop::run_to_end(place_->open(kShortly)->register_record(record_number(1), soon()));
    fo::test::say(ready, 1);
    loop::run_to_end(registered->maintain());
    return 0;
  });
  ASSERT_TRUE(keeper.read());
  EXPECT_EQ(watch.next(), "put " + id_number(1));
  EXPECT_EQ(list().size(), 1U);
  keeper.kill();
  EXPECT_EQ(watch.next(), place_->killed() + id_number(1));
  EXPECT_TRUE(list().empty());
}

TEST_P(RegistryContract, ALostRegistryEndsNothing) {
  const auto registered = run(place_->open(kShortly)->register_record(record_number(1), soon()));
  std::optional<Maintaining> maintaining(std::in_place, *registered);
  Watching watch(place_->open(), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1));
  // A record that is written again before the watch has looked has not changed for it.
  maintaining.reset();
  place_->lose_everything();
  EXPECT_EQ(watch.next(), "stale " + id_number(1));
  maintaining.emplace(*registered);
  EXPECT_EQ(watch.next(), "put " + id_number(1));
}

// A registry with one worker, which is only read. Its parameter is the kind of registry.
class ReadOnlyContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "k8s") {
      api_ = std::make_unique<fo::test::KubeApi>();
      api_->put(fo::test::slice_object("slice", {fo::test::pod_endpoint(1)}));
      uri_ = "k8s:ns/kubernetes.io/service-name=llama?api=" + api_->url();
    }
    registry_ = open();
    key_ = list("instances/").at(0).key;
  }
  [[nodiscard]] std::unique_ptr<Registry> open() const {
    return make_registry(uri_, "dir:" + folder_.path("state"));
  }
  std::vector<Record> list(const std::string& prefix = "") {
    return loop::run_to_end(registry_->list(prefix, soon()));
  }
  void put(const Record& record) { loop::run_to_end(registry_->put(record, soon())); }
  [[nodiscard]] std::string id() const { return key_.substr(key_.rfind('/') + 1); }

  std::string uri_ = "static:http://127.0.0.1:8001";
  fo::test::TempDir folder_;
  std::unique_ptr<fo::test::KubeApi> api_;
  std::unique_ptr<Registry> registry_;
  std::string key_;
};

TEST_P(ReadOnlyContract, ItsWorkersAreNotChanged) {
  const auto refused = [&](const std::function<void()>& change) {
    const auto failure = fo::test::failure_of(change);
    EXPECT_EQ(failure.status, ExitStatus::kNotPermitted);
    EXPECT_EQ(failure.message,
              "registry '" + uri_.substr(0, uri_.find('?')) + "': its workers are read-only");
  };
  refused([&] { loop::run_to_end(registry_->register_record(record_number(2), soon())); });
  refused([&] { loop::run_to_end(registry_->edit(key_, drained, soon())); });
  refused([&] { loop::run_to_end(registry_->remove(key_, soon())); });
  const std::vector<Record> records = list("instances/");
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(decode_instance(records[0]).life, Life::kReady);
  EXPECT_TRUE(list(key_.substr(0, key_.size() - 1) + "x").empty());
}

TEST_P(ReadOnlyContract, OtherRecordsAreInTheStateRegistry) {
  const Record weights{"weights/llama", R"({"a":1})"};
  put(weights);
  EXPECT_EQ(list("weights/"), std::vector<Record>{weights});
  const Record router{"routers/r", R"({"id":"r"})"};
  const auto registered = loop::run_to_end(registry_->register_record(router, soon()));
  EXPECT_EQ(list("routers/"), std::vector<Record>{router});
  EXPECT_EQ(list().size(), 3U);
  EXPECT_TRUE(loop::run_to_end(registry_->edit(
      weights.key, [](const std::string&) { return R"({"a":2})"; }, soon())));
  EXPECT_TRUE(loop::run_to_end(registry_->remove(weights.key, soon())));
  // A worker there is not one of this registry.
  const auto state = make_registry("dir:" + folder_.path("state"));
  const auto worker = loop::run_to_end(state->register_record(record_number(2), soon()));
  EXPECT_EQ(list().size(), 2U);
}

TEST_P(ReadOnlyContract, AMissingStateRegistryHidesNoWorker) {
  EXPECT_EQ(list().size(), 1U);
  EXPECT_EQ(status_of([&] { list("weights/"); }), ExitStatus::kUnavailable);
}

TEST_P(ReadOnlyContract, AWatchReportsBothRegistries) {
  put({"cards/x", "{}"});
  Watching all(open(), "");
  std::vector<std::string> present{all.next(), all.next()};
  std::sort(present.begin(), present.end());
  std::vector<std::string> expected{"put " + id(), "put x"};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(present, expected);
  EXPECT_EQ(all.next(), "listed");
  put({"weights/llama", "{}"});
  EXPECT_EQ(all.next(), "put llama");
  Watching workers(open(), "instances/");
  EXPECT_EQ(workers.next(), "put " + id());
  EXPECT_EQ(workers.next(), "listed");
  Watching weights(open(), "weights/");
  EXPECT_EQ(weights.next(), "put llama");
  EXPECT_EQ(weights.next(), "listed");
}

TEST(ReadOnlyRegistry, AStateRegistryThatCannotBeOpenedHidesNoCard) {
  const fo::test::TempDir folder;
  const fo::test::KubeApi api;
  api.put(fo::test::card_object("card", R"({"version":1,"name":"llama"})"));
  const std::string state = folder.path("state");
  fo::test::spill(state, "a file");
  Watching watch(
      make_registry("k8s:ns/kubernetes.io/service-name=llama?api=" + api.url(), "dir:" + state),
      "cards/");
  EXPECT_EQ(watch.next().substr(0, 4), "put ");
  ASSERT_EQ(::unlink(state.c_str()), 0);
  EXPECT_EQ(watch.next(), "listed");
}

TEST(ReadOnlyRegistry, ACardIsGoneWhenBothRegistriesHaveLostIt) {
  const fo::test::TempDir folder;
  const fo::test::KubeApi api;
  const auto map = fo::test::card_object("card", R"({"version":1,"name":"llama"})");
  const auto open = [&] {
    return make_registry("k8s:ns/kubernetes.io/service-name=llama?api=" + api.url(),
                         "dir:" + folder.path("state"));
  };
  api.put(map);
  Watching watch(open(), "cards/");
  const std::string card = watch.next();
  EXPECT_EQ(watch.next(), "listed");
  const auto registry = open();
  const std::vector<Record> cards = loop::run_to_end(registry->list("cards/", soon()));
  ASSERT_EQ(cards.size(), 1U);
  loop::run_to_end(registry->put(cards[0], soon()));
  EXPECT_EQ(watch.next(), card);
  EXPECT_EQ(loop::run_to_end(registry->list("cards/", soon())), cards);
  api.remove("ConfigMap", "card");
  api.put(fo::test::card_object("other", R"({"version":1,"name":"llama","dtype":"float16"})"));
  EXPECT_NE(watch.next(), card);
  EXPECT_TRUE(loop::run_to_end(registry->remove(cards[0].key, soon())));
  EXPECT_EQ(watch.next(), "gone" + card.substr(3));
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReadOnlyContract, testing::Values("k8s", "static"),
                         [](const auto& kind) { return kind.param; });

INSTANTIATE_TEST_SUITE_P(Kinds, RegistryContract, testing::Values("dir", "etcd"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace fo::fleet
