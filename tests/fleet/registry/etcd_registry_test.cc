// What only a registry in etcd has to survive: see contract_test.cc for the rest.
#include "fleet/registry/etcd_registry.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "etcd/server.h"
#include "etcd/stand_ins.h"
#include "fleet/record/instance.h"
#include "fleet/registry/records.h"
#include "fleet/registry/watching.h"
#include "loop/run.h"
#include "loop/test_loop.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/soon.h"
#include "support/temp_dir.h"

namespace fo::fleet {
namespace {

using base::ExitStatus;
using fo::test::soon;
using fo::test::status_of;
using test::id_number;
using test::Maintaining;
using test::record_number;
using test::Watching;

std::unique_ptr<Registry> open(std::vector<std::string> servers,
                               base::Duration ttl = std::chrono::seconds(2)) {
  EtcdRegistryConfig config;
  config.uri = "etcd:" + servers.front() + "/fo";
  config.etcd.servers = std::move(servers);
  config.prefix = "fo";
  config.ttl = ttl;
  return make_etcd_registry(std::move(config));
}

class EtcdRegistryTest : public fo::test::WithEtcd {
 protected:
  fo::test::TempDir folder_;
};

TEST_F(EtcdRegistryTest, AServerThatRestartsLosesNothing) {
  fo::test::Etcd etcd(folder_);
  const auto registry = open({etcd.url()});
  const auto registered = loop::run_to_end(registry->register_record(record_number(1), soon()));
  const Maintaining maintaining(*registered);
  Watching watch(open({etcd.url()}), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1));
  etcd.restart();
  const auto second = loop::run_to_end(registry->register_record(record_number(2), soon()));
  EXPECT_EQ(watch.next(), "put " + id_number(2));
}

TEST_F(EtcdRegistryTest, WorkersAreStaleWhileNoServerIsReachable) {
  fo::test::Etcd etcd(folder_);
  const auto registry = open({etcd.url()}, std::chrono::minutes(10));
  const auto first = loop::run_to_end(registry->register_record(record_number(1), soon()));
  const auto second = loop::run_to_end(registry->register_record(record_number(2), soon()));
  loop::run_to_end(registry->put({"weights/llama", "{}"}, soon()));
  Watching watch(open({etcd.url()}), "");
  EXPECT_EQ(watch.listing(), "put " + id_number(1) + ", put " + id_number(2) + ", put llama");
  etcd.kill();
  EXPECT_EQ((std::set<std::string>{watch.next(), watch.next()}),
            (std::set<std::string>{"stale " + id_number(1), "stale " + id_number(2)}));
  etcd.start();
  // The watch does not run meanwhile.
  loop::run_to_end(second->deregister(soon()));
  EXPECT_EQ(watch.next(), "put " + id_number(1));
  loop::run_to_end(registry->put({"weights/mistral", "{}"}, soon()));
  EXPECT_EQ(watch.next(), "put mistral");
  loop::run_to_end(first->deregister(soon()));
  EXPECT_EQ(watch.next(), "gone " + id_number(1));
}

TEST_F(EtcdRegistryTest, AServerThatIsAwayLongerThanALeaseEndsNothing) {
  fo::test::Etcd etcd(folder_);
  const auto registry = open({etcd.url()});
  const auto registered = loop::run_to_end(registry->register_record(record_number(1), soon()));
  const Maintaining maintaining(*registered);
  Watching watch(open({etcd.url()}), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1));
  etcd.signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_EQ(
      status_of([&] {
        loop::run_to_end(registry->list("", base::Deadline::after(std::chrono::milliseconds(100))));
      }),
      ExitStatus::kTryAgain);
  etcd.signal(SIGCONT);
  const auto second = loop::run_to_end(registry->register_record(record_number(2), soon()));
  // The lease may have expired meanwhile, and then the record is written again.
  std::string change = watch.next();
  if (change == "stale " + id_number(1)) change = watch.next();
  if (change == "put " + id_number(1)) change = watch.next();
  EXPECT_EQ(change, "put " + id_number(2));
}

TEST_F(EtcdRegistryTest, ChangesThatWereCompactedAreSeenInANewListing) {
  fo::test::Etcd etcd(folder_);
  // No lease expires meanwhile.
  const auto registry = open({etcd.url()}, std::chrono::minutes(10));
  const auto first = loop::run_to_end(registry->register_record(record_number(1), soon()));
  const auto second = loop::run_to_end(registry->register_record(record_number(2), soon()));
  Watching watch(open({etcd.url()}), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1) + ", put " + id_number(2));
  // The watch does not run meanwhile.
  loop::run_to_end(first->deregister(soon()));
  const auto third = loop::run_to_end(registry->register_record(record_number(3), soon()));
  const std::string answer = etcd.run_etcdctl({"get", "--write-out=json", "x"});
  const std::size_t at = answer.find("\"revision\":") + 11;
  const std::string revision = answer.substr(at, answer.find_first_of(",}", at) - at);
  etcd.restart();
  etcd.run_etcdctl({"compact", revision});
  std::string changes;
  for (std::string change = watch.next();; change = watch.next()) {
    changes += change + "\n";
    if (change == "put " + id_number(3) || change == "no change") break;
  }
  EXPECT_NE(changes.find("put " + id_number(3)), std::string::npos) << changes;
  // Either the deregistration was still delivered, or the key is absent from the new listing.
  EXPECT_TRUE(changes.find("gone " + id_number(1)) != std::string::npos ||
              watch.next() == "stale " + id_number(1))
      << changes;
}

TEST_F(EtcdRegistryTest, AnyMemberOfAClusterMayDie) {
  fo::test::EtcdCluster cluster(folder_);
  const std::vector<std::string> urls{cluster.member(0).url(), cluster.member(1).url(),
                                      cluster.member(2).url()};
  const auto registry = open(urls);
  const auto registered = loop::run_to_end(registry->register_record(record_number(1), soon()));
  const Maintaining maintaining(*registered);
  Watching watch(open(urls), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1));
  for (std::size_t member = 0; member < 3; ++member) {
    cluster.member(member).kill();
    // While the others elect a leader, they refuse requests.
    fo::test::await([&] {
      return status_of([&] { loop::run_to_end(registry->list("", soon())); }) == ExitStatus::kOk;
    });
    const int number = static_cast<int>(member) + 2;
    auto another = loop::run_to_end(registry->register_record(record_number(number), soon()));
    EXPECT_EQ(watch.next(), "put " + id_number(number));
    loop::run_to_end(another->deregister(soon()));
    EXPECT_EQ(watch.next(), "gone " + id_number(number));
    cluster.member(member).start();
  }
  EXPECT_EQ(loop::run_to_end(registry->list("", soon())).size(), 1U);
}

TEST_F(EtcdRegistryTest, ARequestWhoseFirstAnswerIsLostHasSucceeded) {
  const fo::test::Etcd etcd(folder_);
  fo::test::TestLoop loop;
  // Of the first server: the answer to the request for the lease, and that to the transaction.
  for (const int lost : {1, 2}) {
    fo::test::Proxy proxy(loop.io(), etcd.port());
    proxy.lost = lost;
    const auto registry = open({"http://" + proxy.address(), etcd.url()});
    const auto registered = loop.run(registry->register_record(record_number(lost), soon()));
    EXPECT_EQ(proxy.connections, lost);
    // The lease is its own.
    loop.run(registered->deregister(soon()));
    EXPECT_TRUE(loop.run(registry->list("", soon())).empty());
  }
}

TEST_F(EtcdRegistryTest, KeysOfOthersAreIgnored) {
  fo::test::Etcd etcd(folder_);
  const auto registry = open({etcd.url()});
  etcd.run_etcdctl({"put", "fo/instances/UPPER", "{}"});
  etcd.run_etcdctl({"put", "fo/other", "{}"});
  etcd.run_etcdctl({"put", "fox/cards/x", "{}"});
  etcd.run_etcdctl({"put", "fo/cards/text", "text"});
  etcd.run_etcdctl({"put", "fo/cards/good", "{}"});
  const auto records = loop::run_to_end(registry->list("", soon()));
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].key, "cards/good");
}

}  // namespace
}  // namespace fo::fleet
