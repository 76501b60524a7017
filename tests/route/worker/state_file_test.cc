#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "loop/spawn.h"
#include "os/file/file.h"
#include "route/worker/registry_source.h"
#include "support/failure.h"
#include "support/soon.h"
#include "support/stderr_text.h"
#include "support/temp_dir.h"

namespace fo::route {
namespace {

using Kind = fleet::RegistryChange::Kind;

std::string id_of(int number) { return std::string(31, '0') + std::to_string(number); }

fleet::Record numbered_record(int number, std::uint64_t slots = 12) {
  fleet::Instance instance;
  instance.id = id_of(number);
  instance.url = "http://127.0.0.1:" + std::to_string(8000 + number);
  instance.model = "llama";
  instance.life = fleet::Life::kReady;
  instance.slots = slots;
  instance.started_at = "2026-01-01T00:00:00Z";
  const auto endpoint = fleet::parse_endpoint_id("llama/worker/generate");
  return {fleet::instance_key(*endpoint, instance.id), fleet::encode(instance)};
}

/// The workers of a router, as its registry's records make them.
struct Fleet {
  explicit Fleet(std::optional<std::uint64_t> routers = {})
      : source({.namespaces = {*fleet::NamespacePattern::parse("llama")}, .routers = routers},
               workers,
               {.on_new = [](const WorkerPtr&) {},
                .on_change = [] {},
                .on_removed = [](const WorkerPtr&) {}}) {}
  void put(int number, std::uint64_t slots = 12) {
    source.apply({.kind = Kind::kPut, .record = numbered_record(number, slots)});
  }
  void change_router(Kind kind, const std::string& id) {
    source.apply({.kind = kind, .record = {.key = "routers/" + id, .text = "{}"}});
  }
  void list() {
    for (std::size_t i = 0; i < RegistrySource::kPrefixes.size(); ++i) {
      source.apply({.kind = Kind::kListed});
    }
  }
  [[nodiscard]] std::uint64_t slots_of(int number) const {
    return workers.find(id_of(number))->slots;
  }

  Workers workers;
  RegistrySource source;
};

TEST(RegistrySource, ItsListingIsReadAsStaleWorkers) {
  Fleet before;
  before.put(1);
  before.put(2);
  Fleet after;
  after.source.load(before.source.save());
  ASSERT_EQ(after.workers.all().size(), 2U);
  const WorkerPtr worker = after.workers.find(id_of(2));
  EXPECT_EQ(worker->url, "http://127.0.0.1:8002");
  EXPECT_EQ(worker->model, "llama");
  EXPECT_TRUE(worker->is_stale);
  after.put(2);
  EXPECT_FALSE(worker->is_stale);
  EXPECT_TRUE(after.workers.find(id_of(1))->is_stale);
  EXPECT_EQ(after.source.save(), before.source.save());
}

TEST(RegistrySource, ItsChangesAreThoseOfItsListing) {
  Fleet fleet;
  const std::string empty = fleet.source.save();
  const std::uint64_t before = fleet.source.changes();
  fleet.put(1);
  const std::uint64_t put = fleet.source.changes();
  EXPECT_NE(put, before);
  fleet.put(1);
  EXPECT_EQ(fleet.source.changes(), put);
  fleet.put(1, 13);
  const std::uint64_t changed = fleet.source.changes();
  EXPECT_NE(changed, put);
  fleet.source.remove(id_of(1));
  EXPECT_NE(fleet.source.changes(), changed);
  EXPECT_EQ(fleet.source.save(), empty);
}

TEST(RegistrySource, ATruncatedOrUnknownListingIsRefusedAsAWhole) {
  Fleet before;
  before.put(1);
  const std::string text = before.source.save();
  std::vector<std::string> invalid{"[]", "null", R"({"instances":[]})", R"({"workers":{}})",
                                   "\xff"};
  for (std::size_t length = 0; length < text.size(); ++length) {
    invalid.push_back(text.substr(0, length));
  }
  for (const std::string& listing : invalid) {
    Fleet fleet;
    EXPECT_EQ(test::failure_of([&] { fleet.source.load(listing); }).status,
              base::ExitStatus::kBadData)
        << listing;
    EXPECT_TRUE(fleet.workers.all().empty());
  }
}

TEST(RegistrySource, RoutersShareTheSlotsOfAllWorkers) {
  Fleet fleet;
  fleet.put(1);
  const auto named = std::make_shared<Worker>("named", fleet::Health{});
  fleet.source.add(named);
  EXPECT_EQ(fleet.slots_of(1), 12U);
  EXPECT_EQ(named->slots, 256U);
  for (const std::string id : {"a", "b", "b", "c"}) fleet.change_router(Kind::kPut, id);
  EXPECT_EQ(fleet.slots_of(1), 4U);
  EXPECT_EQ(named->slots, 85U);
  fleet.put(2, 1);
  EXPECT_EQ(fleet.slots_of(2), 1U);
  fleet.change_router(Kind::kStale, "a");
  EXPECT_EQ(fleet.slots_of(1), 4U);
  fleet.change_router(Kind::kGone, "a");
  EXPECT_EQ(fleet.slots_of(1), 6U);
  Fleet fixed(3);
  fixed.put(1);
  for (const std::string id : {"a", "b"}) fixed.change_router(Kind::kPut, id);
  EXPECT_EQ(fixed.slots_of(1), 4U);
}

class StateFile : public testing::Test {
 protected:
  /// Runs save_periodically() until `done`.
  template <typename Done>
  void save_until(Fleet& fleet, const std::function<void()>& then, Done done) {
    boost::asio::io_context loop(1);
    loop::spawn(loop, fleet.source.save_periodically(path_));
    loop.run_one();
    then();
    const base::Deadline deadline = test::soon();
    while (!done() && !deadline.expired()) loop.run_one_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(done());
  }

  const test::TempDir folder_;
  const std::string path_ = folder_.path("state.json");
};

TEST_F(StateFile, AChangedListingIsSavedAndLoaded) {
  Fleet fleet;
  save_until(
      fleet,
      [&] {
        fleet.put(1);
        fleet.list();
      },
      [&] { return std::filesystem::exists(path_); });
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  Fleet next;
  next.source.load_file(path_);
  EXPECT_TRUE(next.workers.find(id_of(1)));
  // What was loaded does not replace a longer listing before the registry has listed everything.
  save_until(
      next,
      [&] {
        next.put(2);
        next.list();
      },
      [&] { return os::read_file(path_, base::kMiB) == next.source.save(); });
}

TEST_F(StateFile, AnInvalidFileIsOneWarningAndAMissingOneNone) {
  Fleet fleet;
  {
    const test::StderrText log;
    fleet.source.load_file(path_);
    EXPECT_EQ(log.text(), "");
  }
  os::write_file_atomic(path_, R"({"version":1,"instances":{"a":)");
  const test::StderrText log;
  fleet.source.load_file(path_);
  const std::string logged = log.text();
  EXPECT_NE(logged.find("state file '" + path_ + "': not a saved listing of workers"),
            std::string::npos)
      << logged;
  EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), 1);
  EXPECT_TRUE(fleet.workers.all().empty());
}

}  // namespace
}  // namespace fo::route
