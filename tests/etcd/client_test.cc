#include "etcd/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "etcd/server.h"
#include "etcd/stand_ins.h"
#include "loop/test_loop.h"
#include "support/failure.h"

namespace fo::etcd {
namespace {

using base::ExitStatus;
using std::chrono::seconds;
using test::Etcd;
using test::soon;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class EtcdClientTest : public test::WithEtcd {
 protected:
  void SetUp() override {
    WithEtcd::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) etcd_.emplace(dir_);
  }
  Etcd& etcd() { return *etcd_; }
  [[nodiscard]] static Config config_of(std::vector<std::string> servers) {
    Config config;
    config.servers = std::move(servers);
    return config;
  }
  Client client() { return Client(config_of({etcd().url()})); }
  Outcome commit(Client& client, Transaction transaction) {
    return loop_.run(client.commit(std::move(transaction), soon()));
  }
  std::vector<KeyValue> keys(Client& client, const std::string& prefix) {
    Range range;
    range.keys = keys_with_prefix(prefix);
    return loop_.run(client.range(std::move(range), soon())).keys;
  }

  test::TempDir dir_;
  std::optional<Etcd> etcd_;
  test::TestLoop loop_;
};

Transaction put(const std::string& key, const std::string& value, LeaseId lease = 0) {
  return {{}, {Put{key, value, lease}}, {}};
}

TEST_F(EtcdClientTest, TransactionsPutCompareAndDelete) {
  Client client = this->client();
  const std::string bytes("\0\xff\n", 3);
  const Revision first = commit(client, put("a/1", bytes)).revision;
  const Outcome second = commit(client, put("a/2", ""));
  EXPECT_EQ(second.revision, first + 1);
  std::vector<KeyValue> found = keys(client, "a/");
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0], (KeyValue{"a/1", bytes, first, first, 0}));
  Compare changed;
  changed.keys.begin = "a/1";
  changed.target = Compare::Target::kModified;
  changed.number = first;
  const Transaction swap{{changed}, {Put{"a/1", "new", 0}, Delete{{"a/2"}}}, {Range{{"a/1"}}}};
  const Outcome swapped = commit(client, swap);
  EXPECT_TRUE(swapped.succeeded);
  ASSERT_THAT(swapped.results, SizeIs(2));
  EXPECT_EQ(swapped.results[1].deleted, 1U);
  const Outcome refused = commit(client, swap);
  EXPECT_FALSE(refused.succeeded);
  EXPECT_EQ(keys_in(refused, 0).at(0).value, "new");
  found = keys(client, "");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].created, first);
  EXPECT_EQ(found[0].modified, first + 2);
}

TEST_F(EtcdClientTest, LeasesEndWithTheirKeys) {
  Client client = this->client();
  EXPECT_EQ(loop_.run(client.grant_lease(7, seconds(30), soon())), seconds(30));
  EXPECT_EQ(loop_.run(client.grant_lease(7, seconds(30), soon())), std::nullopt);
  EXPECT_EQ(loop_.run(client.keep_alive(7, soon())), seconds(30));
  EXPECT_EQ(loop_.run(client.keep_alive(8, soon())), std::nullopt);
  commit(client, put("a", "1", 7));
  EXPECT_EQ(keys(client, "a").at(0).lease, 7U);
  EXPECT_TRUE(loop_.run(client.revoke_lease(7, soon())));
  EXPECT_EQ(loop_.run(client.revoke_lease(7, soon())), std::nullopt);
  EXPECT_THAT(keys(client, "a"), IsEmpty());
  try {
    commit(client, put("a", "1", 7));
    ADD_FAILURE() << "the lease is gone";
  } catch (const Refused& refused) {
    EXPECT_EQ(refused.kind(), Refusal::Kind::kLeaseNotFound);
    EXPECT_EQ(refused.status(), ExitStatus::kProtocol);
    EXPECT_THAT(refused.what(), HasSubstr("requested lease not found"));
  }
}

TEST_F(EtcdClientTest, WatchTellsWhatHappenedFromItsRevisionOn) {
  Client client = this->client();
  commit(client, put("a/0", "before"));
  const Revision from = commit(client, put("a/1", "1")).revision;
  commit(client, put("b/1", "other"));
  commit(client, {{}, {Put{"a/2", "2", 0}, Put{"a/3", "3", 0}}, {}});
  commit(client, {{}, {Delete{keys_with_prefix("a/")}}, {}});
  WatchStream stream(Watch{keys_with_prefix("a/"), from});
  std::vector<std::string> told;
  const auto end = loop_.run(client.watch_once(stream, soon(), [&](const WatchMessage& message) {
    for (const Event& event : message.events) {
      const bool is_put = event.kind == Event::Kind::kPut;
      told.push_back((is_put ? "+" : "-") + event.key.key + "@" +
                     std::to_string(event.key.modified - from));
    }
    return told.size() < 7;
  }));
  EXPECT_EQ(end, Client::WatchEnd::kStopped);
  EXPECT_THAT(told,
              ElementsAre("+a/1@0", "+a/2@2", "+a/3@2", "-a/0@3", "-a/1@3", "-a/2@3", "-a/3@3"));
  EXPECT_EQ(stream.next_revision(), from + 4);
}

}  // namespace
}  // namespace fo::etcd
