// A router whose workers come and go in a registry while clients ask. The scenarios are those of
// Dynamo's tests of fault tolerance (deploy/scenarios with disaggregated workers, etcd_ha).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etcd/server.h"
#include "fleet/registry/dir_registry.h"
#include "fleet/registry/etcd_registry.h"
#include "route/load.h"
#include "route/registered.h"
#include "route/resume/disturbed.h"
#include "support/fds.h"
#include "support/temp_dir.h"

namespace fo::test {
namespace {

constexpr Load::Clients kClients{.streams = 4, .whole = 4};

/// The worker leaves; its requests end there, and it gets no others.
void expect_no_more_requests(RegisteredFleet& fleet, Load& load, const RegisteredPtr& worker) {
  const route::WorkerPtr known = fleet.find(worker);
  fleet.leave(load, worker);
  load.run_until([&] { return known->requests == 0; });
  const std::uint64_t requests = worker->requests();
  load.run(16);
  EXPECT_EQ(worker->requests(), requests);
}

class RouterRegistry : public FdCounting {
 protected:
  std::shared_ptr<fleet::Registry> open() {
    return fleet::make_dir_registry(folder_.path("registry"));
  }
  TempDir folder_;
};

// Dynamo: rolling upgrade of prefill and decode workers.
TEST_F(RouterRegistry, ARollingRestartOfPrefillAndDecodeFailsNoRequest) {
  RegisteredFleet fleet(open());
  std::vector<RegisteredPtr> workers;
  const std::vector<std::string> components{"worker-prefill", "worker-prefill", "worker-decode",
                                            "worker-decode"};
  for (const std::string& component : components) workers.push_back(fleet.add(component));
  Load load(fleet, kClients, long_answer(true));
  for (std::size_t i = 0; i < workers.size(); ++i) {
    load.run(16);
    fleet.drain(load, workers[i]);
    fleet.leave(load, workers[i]);
    workers[i]->engine.reset();
    load.run(16);
    workers[i] = fleet.add(load, components[i]);
    const bool is_for_decode = components[i] == "worker-decode";
    if (is_for_decode) load.run_until([&] { return workers[i]->requests() > 0; });
  }
  load.end();
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(workers[i]->requests(), 0U) << "it is for prefill";
}

// Dynamo: a new version of the fleet is another cohort, whose parts do not start at once.
TEST_F(RouterRegistry, ACohortReplacesAnotherUnderLoad) {
  RegisteredFleet fleet(open());
  const RegisteredPtr old_prefill = fleet.add("worker-prefill", "old");
  const RegisteredPtr old_decode = fleet.add("worker-decode", "old");
  Load load(fleet, kClients, long_answer(true));
  const RegisteredPtr decode = fleet.add(load, "worker-decode", "new");
  load.run(16);
  EXPECT_EQ(decode->requests(), 0U) << "no worker for prefill pairs with it";
  const RegisteredPtr prefill = fleet.add(load, "worker-prefill", "new");
  load.run_until([&] { return decode->requests() > 0; });
  for (const RegisteredPtr& old : {old_decode, old_prefill}) {
    fleet.drain(load, old);
    fleet.leave(load, old);
    old->engine.reset();
    load.run(16);
  }
  load.end();
}

TEST_F(RouterRegistry, WithoutAWorkerForPrefillRequestsWaitForTheNextOne) {
  RegisteredFleet fleet(open());
  const RegisteredPtr prefill = fleet.add("worker-prefill");
  const RegisteredPtr decode = fleet.add("worker-decode");
  EXPECT_EQ(fleet.ask(long_answer(true))->status(), 200);
  fleet.begin_leave(prefill);
  fleet.run_until([&] { return fleet.find(prefill) == nullptr; });
  const Client waits = fleet.begin(long_answer(true));
  fleet.run_until([&] { return fleet.requests().size() == 1; });
  EXPECT_TRUE(fleet.requests()[0]["worker"].is_null());
  EXPECT_EQ(decode->requests(), 1U);
  const RegisteredPtr next = fleet.add("worker-prefill");
  fleet.run_until([&] { return waits->has_ended(); });
  EXPECT_EQ(waits->status(), 200);
}

// Its process may run on, or have ended without a drain.
TEST_F(RouterRegistry, AWorkerThatHasLeftGetsNoMoreRequests) {
  RegisteredFleet fleet(open());
  const RegisteredPtr first = fleet.add("worker");
  const RegisteredPtr second = fleet.add("worker");
  Load load(fleet, kClients, long_answer(true));
  load.run_until([&] { return first->requests() > 0; });
  expect_no_more_requests(fleet, load, first);
  load.end();
}

class RouterEtcd : public WithEtcd {
 protected:
  std::shared_ptr<fleet::Registry> open() {
    fleet::EtcdRegistryConfig config;
    for (std::size_t i = 0; i < 3; ++i) config.etcd.servers.push_back(cluster_->member(i).url());
    config.uri = "etcd:" + config.etcd.servers.front() + "/fo";
    config.prefix = "fo";
    config.ttl = std::chrono::seconds(2);
    return fleet::make_etcd_registry(std::move(config));
  }
  void SetUp() override {
    WithEtcd::SetUp();
    if (!IsSkipped()) cluster_ = std::make_unique<EtcdCluster>(folder_);
  }
  void start(Load& load, std::size_t member) {
    cluster_->member(member).launch();
    load.run_until([&] { return etcd_is_ready(cluster_->member(member).port()); });
  }
  /// A worker comes, and gets requests; another one leaves, and gets no more.
  void replace(RegisteredFleet& fleet, Load& load, RegisteredPtr& worker) {
    RegisteredPtr added = fleet.add(load, "worker");
    load.run_until([&] { return added->requests() > 0; });
    expect_no_more_requests(fleet, load, worker);
    worker = std::move(added);
  }

  TempDir folder_;
  std::unique_ptr<EtcdCluster> cluster_;
};

// Dynamo: etcd_ha, one member.
TEST_F(RouterEtcd, AMemberThatDiesAndReturnsFailsNoRequest) {
  RegisteredFleet fleet(open());
  std::vector<RegisteredPtr> workers{fleet.add("worker"), fleet.add("worker")};
  Load load(fleet, kClients, long_answer(true));
  for (std::size_t member = 0; member < 3; ++member) {
    cluster_->member(member).kill();
    replace(fleet, load, workers[member % workers.size()]);
    start(load, member);
  }
  load.end();
}

// Dynamo: etcd_ha, all members.
TEST_F(RouterEtcd, WithoutAnyMemberTheRouterGoesOnWithWhatItKnows) {
  RegisteredFleet fleet(open());
  std::vector<RegisteredPtr> workers{fleet.add("worker"), fleet.add("worker"), fleet.add("worker")};
  Load load(fleet, kClients, long_answer(true));
  for (std::size_t member = 0; member < 3; ++member) cluster_->member(member).kill();
  load.run(32);
  // It notices a death by itself.
  workers[2]->engine.reset();
  load.run_until([&] { return !fleet.is_reachable(workers[2]); });
  load.run(32);
  for (std::size_t member = 0; member < 3; ++member) cluster_->member(member).launch();
  for (std::size_t member = 0; member < 3; ++member) {
    load.run_until([&] { return etcd_is_ready(cluster_->member(member).port()); });
  }
  replace(fleet, load, workers[0]);
  load.end();
}

}  // namespace
}  // namespace fo::test
