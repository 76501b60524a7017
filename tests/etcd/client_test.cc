#include "etcd/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "etcd/server.h"
#include "etcd/stand_ins.h"
#include "loop/backoff.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/ports.h"
#include "support/text_file.h"

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
    Range range{.keys = keys_with_prefix(prefix)};
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
  std::vector<std::string> reported;
  const auto end = loop_.run(client.watch_once(stream, soon(), [&](const WatchMessage& message) {
    for (const Event& event : message.events) {
      const bool is_put = event.kind == Event::Kind::kPut;
      reported.push_back((is_put ? "+" : "-") + event.key.key + "@" +
                         std::to_string(event.key.modified - from));
    }
    return reported.size() < 7;
  }));
  EXPECT_EQ(end, Client::WatchEnd::kStopped);
  EXPECT_THAT(reported,
              ElementsAre("+a/1@0", "+a/2@2", "+a/3@2", "-a/0@3", "-a/1@3", "-a/2@3", "-a/3@3"));
  EXPECT_EQ(stream.next_revision(), from + 4);
}

TEST_F(EtcdClientTest, PutsAndDeletionsTellWhatTheyDid) {
  Client client = this->client();
  const Revision first = loop_.run(client.put({"a/1", "x", 0}, soon()));
  EXPECT_EQ(loop_.run(client.put({"a/2", "y", 0}, soon())), first + 1);
  EXPECT_EQ(loop_.run(client.erase(keys_with_prefix("b/"), soon())), 0U);
  EXPECT_EQ(loop_.run(client.erase({"a/1"}, soon())), 1U);
  EXPECT_EQ(loop_.run(client.erase(keys_with_prefix("a/"), soon())), 1U);
  EXPECT_THAT(keys(client, ""), IsEmpty());
}

TEST_F(EtcdClientTest, ListsAreOfOneRevisionInPages) {
  Client client = this->client();
  for (int i = 0; i < 3; ++i) {
    Transaction many;
    for (int j = 0; j < 100; ++j) {
      many.then.emplace_back(Put{"a/" + std::to_string(i) + "/" + std::to_string(100 + j), "", 0});
    }
    commit(client, std::move(many));
  }
  commit(client, put("b", ""));
  const Found all = loop_.run(client.list(keys_with_prefix("a/"), soon()));
  ASSERT_THAT(all.keys, SizeIs(300));
  EXPECT_EQ(all.keys.front().key, "a/0/100");
  EXPECT_EQ(all.keys.back().key, "a/2/199");
  EXPECT_EQ(all.revision, all.keys.back().modified + 1);
  EXPECT_THAT(loop_.run(client.list({"b"}, soon())).keys, SizeIs(1));
  EXPECT_THAT(loop_.run(client.list(keys_with_prefix("a/1/10"), soon())).keys, SizeIs(10));
  EXPECT_EQ(test::status_of([&] { loop_.run(client.list(keys_with_prefix("a/"), soon(), 299)); }),
            ExitStatus::kProtocol);
  // The revision of the list is still readable after the deletion.
  loop_.run(client.erase(keys_with_prefix("a/"), soon()));
  const Range then{.keys = keys_with_prefix("a/"), .revision = all.revision, .keys_only = true};
  EXPECT_THAT(loop_.run(client.range(then, soon())).keys, SizeIs(300));
  etcd().run_etcdctl({"compact", std::to_string(all.revision + 1)});
  try {
    loop_.run(client.range(then, soon()));
    ADD_FAILURE() << "it was compacted";
  } catch (const Refused& refused) {
    EXPECT_EQ(refused.kind(), Refusal::Kind::kCompacted);
  }
}

/// A running watch, over as many connections as necessary, and the events that it has reported.
class Watching {
 public:
  Watching(test::TestLoop& loop, Client& client, Watch watch) : stream_(std::move(watch)) {
    loop::spawn(loop.io(), loop::store(run(client), end),
                [this](const std::exception_ptr&) { is_over = true; });
  }
  std::vector<std::string> reported;
  int connections = 0;
  int failures = 0;
  std::string reason;
  bool is_enough = false;
  bool is_over = false;
  std::optional<Client::WatchEnd> end;
  [[nodiscard]] Revision next_revision() const { return stream_.next_revision(); }

 private:
  bool note(const WatchMessage& message) {
    if (message.is_created) ++connections;
    for (const Event& event : message.events) {
      const bool is_put = event.kind == Event::Kind::kPut;
      reported.push_back((is_put ? "+" : "-") + event.key.key);
    }
    return !is_enough;
  }
  // Throws a permanent error that occurs before the first message.
  boost::asio::awaitable<Client::WatchEnd> run(Client& client) {
    const base::Deadline deadline = soon();
    const std::function<bool(const WatchMessage&)> on_message =
        std::bind_front(&Watching::note, this);
    for (;;) {
      try {
        const Client::WatchEnd how = co_await client.watch_once(stream_, deadline, on_message);
        co_return how;
      } catch (const base::Error& error) {
        if (connections == 0 && !loop::is_transient(error)) throw;
        ++failures;
        reason = error.what();
      }
      co_await loop::pause_for(std::chrono::milliseconds(50));
    }
  }

  WatchStream stream_;
};

TEST_F(EtcdClientTest, WatchOutlivesACrashAndMissesNothing) {
  Client client = this->client();
  const Revision from = loop_.run(client.put({"a/0", "", 0}, soon())) + 1;
  Watching watching(loop_, client, {keys_with_prefix("a/"), from});
  loop_.run_until([&] { return watching.connections == 1; });
  Client other = this->client();
  loop_.run(other.put({"a/1", "", 0}, soon()));
  loop_.run_until([&] { return watching.reported.size() == 1; });
  etcd().kill();
  loop_.run_until([&] { return watching.failures > 0; });
  EXPECT_THAT(watching.reason, HasSubstr(etcd().url()));
  etcd().start();
  loop_.run(other.put({"a/2", "", 0}, soon()));
  loop_.run(other.erase({"a/1"}, soon()));
  loop_.run_until([&] { return watching.reported.size() >= 3; });
  EXPECT_THAT(watching.reported, ElementsAre("+a/1", "+a/2", "-a/1"));
  watching.is_enough = true;
  loop_.run(other.put({"a/3", "", 0}, soon()));
  loop_.run_until([&] { return watching.is_over; });
  EXPECT_EQ(watching.end, Client::WatchEnd::kStopped);
}

TEST_F(EtcdClientTest, WatchTellsThatWhatItNeedsWasCompacted) {
  Client client = this->client();
  const Revision from = loop_.run(client.put({"a/0", "", 0}, soon()));
  for (int i = 1; i < 5; ++i) loop_.run(client.put({"a/0", "", 0}, soon()));
  etcd().run_etcdctl({"compact", std::to_string(from + 3)});
  Watching watching(loop_, client, {keys_with_prefix("a/"), from});
  loop_.run_until([&] { return watching.is_over; });
  EXPECT_EQ(watching.end, Client::WatchEnd::kCompacted);
  EXPECT_EQ(watching.failures, 0);
  // After a new list, the watch continues.
  const Found listed = loop_.run(client.list(keys_with_prefix("a/"), soon()));
  Watching again(loop_, client, {keys_with_prefix("a/"), listed.revision + 1});
  loop_.run(client.put({"a/9", "", 0}, soon()));
  loop_.run_until([&] { return !again.reported.empty(); });
  EXPECT_THAT(again.reported, ElementsAre("+a/9"));
  again.is_enough = true;
  loop_.run(client.put({"a/9", "", 0}, soon()));
  loop_.run_until([&] { return again.is_over; });
}

TEST_F(EtcdClientTest, LongPastIsToldWhole) {
  Client client = this->client();
  // More than etcd sends in one message.
  const std::string large(600'000, 'x');
  Revision from = 0;
  for (int i = 0; i < 6; ++i) {
    Transaction two;
    two.then.emplace_back(Put{"a/" + std::to_string(2 * i), large, 0});
    two.then.emplace_back(Put{"a/" + std::to_string(2 * i + 1), large, 0});
    const Revision revision = commit(client, std::move(two)).revision;
    if (i == 0) from = revision;
  }
  Watching watching(loop_, client, {keys_with_prefix("a/"), from});
  loop_.run_until([&] { return watching.reported.size() >= 12 || watching.is_over; });
  std::vector<std::string> wanted;
  for (int i = 0; i < 12; ++i) wanted.push_back("+a/" + std::to_string(i));
  EXPECT_EQ(watching.reported, wanted);
  EXPECT_EQ(watching.failures, 0);
  EXPECT_EQ(watching.next_revision(), from + 6);
  watching.is_enough = true;
  loop_.run(client.put({"a/x", "", 0}, soon()));
  loop_.run_until([&] { return watching.is_over; });
}

TEST_F(EtcdClientTest, AnotherServerIsAskedWhereOneDoesNotAnswer) {
  const test::ReservedPort unused;
  const std::string dead = unused.url();
  test::Parrot page(loop_.io(), test::http_answer("<html>"));
  for (const std::string& first : {dead, "http://" + page.address()}) {
    Client client(config_of({first, etcd().url()}));
    const Revision revision = loop_.run(client.put({"a", "", 0}, soon()));
    EXPECT_GT(revision, 0U);
    EXPECT_EQ(client.server(), etcd().url());
    client.pass_over();
    Watching watching(loop_, client, {{"a"}, revision});
    loop_.run_until([&] { return !watching.reported.empty() || watching.is_over; });
    EXPECT_THAT(watching.reported, ElementsAre("+a"));
    watching.is_enough = true;
    Client other = this->client();
    loop_.run(other.put({"a", "", 0}, soon()));
    loop_.run_until([&] { return watching.is_over; });
  }
}

TEST_F(EtcdClientTest, TwoRequestsAtOnceDoNotPassOverTheServerThatAnswers) {
  const test::ReservedPort unused;
  const std::string dead = unused.url();
  Client client(config_of({dead, etcd().url()}));
  std::vector<ExitStatus> ended;
  for (const char* const key : {"a", "b"}) {
    boost::asio::co_spawn(
        loop_.io(), test::status_of(client.put({key, "", 0}, soon())),
        [&](const std::exception_ptr&, ExitStatus status) { ended.push_back(status); });
  }
  loop_.run_until([&] { return ended.size() == 2; });
  EXPECT_THAT(ended, ElementsAre(ExitStatus::kOk, ExitStatus::kOk));
  EXPECT_EQ(client.server(), etcd().url());
}

TEST_F(EtcdClientTest, WatchAsAUserOutlivesItsToken) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"user", "add", "root:rootpw"},
           {"user", "grant-role", "root", "root"},
           {"role", "add", "reader"},
           {"role", "grant-permission", "reader", "readwrite", "--prefix", "a/"},
           {"user", "add", "fo:secret"},
           {"user", "grant-role", "fo", "reader"},
           {"auth", "enable"}}) {
    etcd().run_etcdctl(command);
  }
  test::spill(dir_.path("password"), "secret\n");
  Config config = config_of({etcd().url()});
  config.user = "fo";
  config.password_file = dir_.path("password");
  Client client(config);
  Watching watching(loop_, client, {keys_with_prefix("a/")});
  loop_.run_until([&] { return watching.connections == 1; });
  etcd().restart();
  loop_.run_until([&] { return watching.connections == 2; });
  Client other(config);
  loop_.run(other.put({"a/1", "", 0}, soon()));
  loop_.run_until([&] { return !watching.reported.empty(); });
  EXPECT_THAT(watching.reported, ElementsAre("+a/1"));
  watching.is_enough = true;
  loop_.run(other.put({"a/1", "", 0}, soon()));
  loop_.run_until([&] { return watching.is_over; });
  Client unauthorized(config);
  Watching forbidden(loop_, unauthorized, {keys_with_prefix("b/")});
  loop_.run_until([&] { return forbidden.is_over; });
  EXPECT_EQ(forbidden.end, std::nullopt);
}

TEST_F(EtcdClientTest, WatchOfAClusterOutlivesAnyMember) {
  test::EtcdCluster cluster(dir_);
  std::vector<std::string> servers;
  for (std::size_t i = 0; i < 3; ++i) servers.push_back(cluster.member(i).url());
  Client client(config_of(servers));
  Client other(config_of(servers));
  const Revision from = loop_.run(other.put({"a/0", "", 0}, soon()));
  Watching watching(loop_, client, {keys_with_prefix("a/"), from});
  const auto reported = [&] {
    // A put that timed out may have been executed, and is repeated.
    std::vector<std::string> once = watching.reported;
    once.erase(std::unique(once.begin(), once.end()), once.end());
    return once;
  };
  for (std::size_t i = 0; i < 3; ++i) {
    loop_.run_until([&] { return reported().size() == i + 1; });
    std::size_t member = 0;
    while (cluster.member(member).url() != client.server()) ++member;
    cluster.member(member).kill();
    const std::string key = "a/" + std::to_string(i + 1);
    test::await([&] {
      return test::status_of([&] {
               loop_.run(other.put({key, "", 0}, test::in_ms(2000)));
             }) == ExitStatus::kOk;
    });
    loop_.run_until([&] { return reported().size() == i + 2; });
    cluster.member(member).launch();
    cluster.member(member).await_ready();
  }
  EXPECT_THAT(reported(), ElementsAre("+a/0", "+a/1", "+a/2", "+a/3"));
  watching.is_enough = true;
  loop_.run(other.put({"a/4", "", 0}, soon()));
  loop_.run_until([&] { return watching.is_over; });
}

}  // namespace
}  // namespace fo::etcd
