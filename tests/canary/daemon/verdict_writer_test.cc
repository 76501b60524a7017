#include "canary/daemon/verdict_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "canary/judge/acquittal.h"
#include "canary/watched.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"

namespace fo::canary {
namespace {

using boost::asio::awaitable;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

// Records in memory. An edit is repeated if `before_write` changes the record meanwhile, as those
// of real registries are.
class MemoryRegistry final : public fleet::Registry {
 public:
  std::map<std::string, std::string> records;
  /// Each text that was written.
  std::vector<std::string> written;
  std::function<void()> before_write = [] {};
  /// A key that can't be written.
  std::string refused_key;

  awaitable<std::vector<fleet::Record>> list(std::string, base::Deadline) override {
    co_return std::vector<fleet::Record>();
  }
  awaitable<void> watch(std::string, std::function<void(const fleet::RegistryChange&)>) override {
    co_return;
  }
  awaitable<std::unique_ptr<fleet::RegisteredRecord>> register_record(fleet::Record,
                                                                      base::Deadline) override {
    co_return nullptr;
  }
  awaitable<void> put(fleet::Record record, base::Deadline) override {
    if (record.key == refused_key) throw base::Error(base::ExitStatus::kNotPermitted, "refused");
    before_write();
    write(record.key, record.text);
    co_return;
  }
  awaitable<bool> edit(std::string, fleet::Edit, base::Deadline) override { co_return false; }
  awaitable<void> edit_or_create(std::string key, fleet::Edit edit, base::Deadline) override {
    if (key == refused_key) throw base::Error(base::ExitStatus::kNotPermitted, "refused");
    const auto present = [&] { return records.contains(key) ? records.at(key) : std::string(); };
    for (;;) {
      const std::string before = present();
      const std::string text = edit(before);
      before_write();
      if (present() != before) continue;
      if (text != before) write(key, text);
      co_return;
    }
  }
  awaitable<bool> remove(std::string key, base::Deadline) override {
    co_return records.erase(key) > 0;
  }

 private:
  void write(const std::string& key, const std::string& text) {
    records[key] = text;
    written.push_back(text);
  }
};

class VerdictWriterOfTwo : public testing::Test {
 protected:
  VerdictWriterOfTwo() {
    for (const std::string& id : {kOne, kTwo}) workers_.apply(instance_change(id, "m"), at_);
    workers_.on_verdicts_listed();
    loop::spawn(loop_.io(), writer_.run());
  }

  void convict(const std::string& id) {
    workers_.find(*workers_.all().at(id), Finding::kConviction, {.reason = "wrong tokens"}, at_);
  }
  // Does what acquit() does with the present conviction.
  void acquit_in_registry(const std::string& id) {
    const std::string key = fleet::verdict_key(id, "test");
    registry_.records[key] =
        acquitted(fleet::decode_verdict({.key = key, .text = registry_.records.at(key)}), at_.wall);
  }
  fleet::HealthState in_registry(const std::string& id) {
    const std::string key = fleet::verdict_key(id, "test");
    return fleet::decode_verdict({.key = key, .text = registry_.records.at(key)}).health;
  }
  std::vector<fleet::HealthState> written() {
    std::vector<fleet::HealthState> healths;
    for (const std::string& text : std::exchange(registry_.written, {})) {
      healths.push_back(
          *fleet::parse_health_state(nlohmann::json::parse(text).at("health").get<std::string>()));
    }
    return healths;
  }

  using State = fleet::HealthState;
  const std::string kOne = std::string(32, '1');
  const std::string kTwo = std::string(32, '2');
  const std::string kThree = std::string(32, '3');
  const Now at_{.steady = std::chrono::seconds(100),
                .wall = text::WallTime(std::chrono::hours(24))};
  fo::test::TestLoop loop_;
  MemoryRegistry registry_;
  DaemonCounts counts_;
  Workers workers_ = no_workers([this](const std::string& id) { writer_.publish(id); });
  VerdictWriter writer_{loop_.io().get_executor(), registry_, workers_, "test", counts_};
};

TEST_F(VerdictWriterOfTwo, AConvictionIsWrittenOnce) {
  convict(kOne);
  loop_.run_ready();
  EXPECT_THAT(written(), ElementsAre(State::kConvicted));
  writer_.publish(kOne);
  loop_.run_ready();
  EXPECT_THAT(written(), ElementsAre());
  EXPECT_EQ(in_registry(kOne), State::kConvicted);
}

TEST_F(VerdictWriterOfTwo, AConvictionReplacesAnotherVerdictAndComesFirst) {
  writer_.publish(kOne);
  loop_.run_ready();
  EXPECT_THAT(written(), ElementsAre(State::kHealthy));
  writer_.publish(kTwo);
  convict(kOne);
  loop_.run_ready();
  EXPECT_THAT(written(), ElementsAre(State::kConvicted, State::kHealthy));
}

TEST_F(VerdictWriterOfTwo, AnAcquittalThatTheWatchHasNotReportedStays) {
  convict(kOne);
  loop_.run_ready();
  acquit_in_registry(kOne);
  written();
  writer_.publish(kOne);
  loop_.run_ready();
  // The worker is on probation, as after any acquittal.
  EXPECT_EQ(workers_.all().at(kOne)->health.state(), State::kProbation);
  EXPECT_THAT(written(), ElementsAre(State::kProbation));
}

TEST_F(VerdictWriterOfTwo, AnAcquittalDuringAWriteStays) {
  convict(kOne);
  loop_.run_ready();
  // The record has another text, so that the edit has something to write.
  const std::string key = fleet::verdict_key(kOne, "test");
  const std::string conviction = registry_.records.at(key);
  fleet::Verdict older = fleet::decode_verdict({.key = key, .text = conviction});
  older.reason = "wrong tokens, as an older text has it";
  registry_.records[key] = fleet::encode(older);
  bool is_done = false;
  registry_.before_write = [&] {
    if (!std::exchange(is_done, true)) acquit_in_registry(kOne);
  };
  written();
  writer_.publish(kOne);
  loop_.run_ready();
  EXPECT_TRUE(is_done);
  EXPECT_THAT(written(), Not(Contains(State::kConvicted)));
  EXPECT_EQ(in_registry(kOne), State::kProbation);
}

TEST_F(VerdictWriterOfTwo, AnAcquittalOfAnEarlierConvictionChangesNothing) {
  convict(kOne);
  loop_.run_ready();
  const std::string key = fleet::verdict_key(kOne, "test");
  fleet::Verdict earlier = fleet::decode_verdict({.key = key, .text = registry_.records.at(key)});
  earlier.since -= std::chrono::hours(1);
  registry_.records[key] = acquitted(earlier, at_.wall);
  writer_.publish(kOne);
  loop_.run_ready();
  EXPECT_EQ(in_registry(kOne), State::kConvicted);
}

TEST_F(VerdictWriterOfTwo, TheRecordOfAWorkerThatIsGoneIsRemoved) {
  writer_.publish(kOne);
  loop_.run_ready();
  workers_.apply(gone_change(kOne), at_);
  writer_.withdraw(kOne);
  loop_.run_ready();
  EXPECT_TRUE(registry_.records.empty());
}

TEST_F(VerdictWriterOfTwo, AConvictionThatIsRefusedHoldsUpNothingElse) {
  workers_.apply(instance_change(kThree, "m"), at_);
  writer_.publish(kThree);
  loop_.run_ready();
  registry_.refused_key = fleet::verdict_key(kOne, "test");
  written();
  convict(kOne);
  loop_.run_ready();
  writer_.publish(kTwo);
  workers_.apply(gone_change(kThree), at_);
  writer_.withdraw(kThree);
  loop_.run_ready();
  EXPECT_THAT(written(), ElementsAre(State::kHealthy));
  EXPECT_FALSE(registry_.records.contains(fleet::verdict_key(kThree, "test")));
  // It is tried again, as are other convictions.
  convict(kTwo);
  const auto is_convicted = [&](const std::string& id) {
    return registry_.records.contains(fleet::verdict_key(id, "test")) &&
           in_registry(id) == State::kConvicted;
  };
  loop_.run_until([&] { return is_convicted(kTwo); });
  EXPECT_FALSE(is_convicted(kOne));
  registry_.refused_key.clear();
  loop_.run_until([&] { return is_convicted(kOne); });
}

TEST_F(VerdictWriterOfTwo, AnotherVerdictThatIsRefusedHoldsUpNoRemoval) {
  writer_.publish(kTwo);
  loop_.run_ready();
  registry_.refused_key = fleet::verdict_key(kOne, "test");
  writer_.publish(kOne);
  workers_.apply(gone_change(kTwo), at_);
  writer_.withdraw(kTwo);
  loop_.run_ready();
  EXPECT_TRUE(registry_.records.empty());
}

TEST_F(VerdictWriterOfTwo, AConvictionIsAwaitedUntilItIsWrittenOrTheTimeIsOver) {
  registry_.refused_key = fleet::verdict_key(kOne, "test");
  EXPECT_FALSE(writer_.has_convictions());
  convict(kOne);
  EXPECT_TRUE(writer_.has_convictions());
  loop_.run(writer_.await_convictions(fo::test::in_ms(20)));
  EXPECT_TRUE(writer_.has_convictions());
  registry_.refused_key.clear();
  loop_.run(writer_.await_convictions(fo::test::soon()));
  EXPECT_FALSE(writer_.has_convictions());
  EXPECT_EQ(in_registry(kOne), State::kConvicted);
}

TEST_F(VerdictWriterOfTwo, NothingIsWrittenBeforeTheVerdictsAreListed) {
  Workers workers = no_workers();
  workers.apply(instance_change(kOne, "m"), at_);
  VerdictWriter writer(loop_.io().get_executor(), registry_, workers, "test", counts_);
  loop::spawn(loop_.io(), writer.run());
  writer.publish(kOne);
  loop_.run_ready();
  EXPECT_THAT(written(), ElementsAre());
  workers.on_verdicts_listed();
  writer.start();
  loop_.run_ready();
  EXPECT_THAT(written(), ElementsAre(State::kHealthy));
}

}  // namespace
}  // namespace fo::canary
