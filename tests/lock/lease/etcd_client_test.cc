#include "lock/lease/etcd_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/timerfd.h>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/boot_clock.h"
#include "etcd/stand_ins.h"
#include "lock/failover_lock.h"
#include "lock/lease/etcd.h"
#include "lock/lease/lease_times.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/forked.h"
#include "support/ports.h"
#include "support/soon.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using base::BootClock;
using base::Deadline;
using base::Duration;
using base::ExitStatus;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Etcd;
using test::Forked;
using test::http_answer;
using test::kLong;
using test::Parrot;
using test::Proxy;
using test::say;
using test::spill;
using test::TempDir;
using test::TestLoop;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using fo::test::soon;

class RunningContender {
 public:
  RunningContender(TestLoop& loop, const LockUri& uri, const std::string& id)
      : loop_(loop), client_(make_etcd_client(uri, id)) {}

  void ask() {
    is_done_ = false;
    lease_.reset();
    loop::spawn(
        loop_.io(), loop::store(client_->acquire(), lease_),
        [this](std::exception_ptr error) {
          is_done_ = true;
          failure_ = std::move(error);
        },
        cancel_.slot());
  }
  [[nodiscard]] bool is_done() const { return is_done_; }
  [[nodiscard]] bool has_it() const { return lease_.has_value(); }
  Lease await() {
    loop_.run_until([&] { return is_done_; });
    if (failure_) std::rethrow_exception(failure_);
    return lease_.value_or(Lease{});
  }
  Lease acquire() {
    ask();
    return await();
  }
  void cancel() {
    cancel_.emit(asio::cancellation_type::terminal);
    loop_.run_until([&] { return is_done_; });
  }
  std::variant<Renewal, LeaseEnded> renew(Duration limit = kLong) {
    return loop_.run(client_->renew(Deadline::after(limit)));
  }
  [[nodiscard]] bool renews() { return std::holds_alternative<Renewal>(renew()); }
  void release() {
    lease_.reset();
    loop_.run(client_->release(soon()));
  }
  void begin_release() {
    is_done_ = false;
    loop::spawn(loop_.io(), client_->release(soon()), [this](std::exception_ptr error) {
      is_done_ = true;
      failure_ = std::move(error);
    });
  }

 private:
  TestLoop& loop_;
  std::unique_ptr<LeaseClient> client_;
  asio::cancellation_signal cancel_;
  bool is_done_ = true;
  std::exception_ptr failure_;
  std::optional<Lease> lease_;
};

LockUri parrot_lock(const Parrot& parrot, const std::string& ttl = "1s") {
  return test::etcd_lock(parrot.address(), "x", "?ttl=" + ttl);
}

class EtcdClient : public test::WithEtcd {
 protected:
  void SetUp() override {
    WithEtcd::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) etcd_.emplace(dir_);
  }
  Etcd& etcd() { return *etcd_; }
  LockUri lock(const std::string& ttl) {
    return test::etcd_lock(etcd().address(), "x", "?ttl=" + ttl);
  }
  std::vector<std::string> keys() { return test::queue_in(etcd(), "x"); }
  std::unique_ptr<RunningContender> contender(const LockUri& uri,
                                              const std::string& id = "engine-0") {
    return std::make_unique<RunningContender>(loop_, uri, id);
  }
  std::vector<std::string> waiting_ids() {
    std::vector<std::string> ids;
    for (const Waiter& waiter : query_etcd(lock("1s"), soon()).waiters) ids.push_back(waiter.id);
    return ids;
  }
  void await_queue(std::size_t size) {
    loop_.run_until([&] {
      const LockStatus status = query_etcd(lock("1s"), soon());
      return status.waiters.size() + (status.held ? 1 : 0) == size;
    });
  }
  std::string leases() { return etcd().run_etcdctl({"lease", "list"}); }
  // Waits until the contender is queued and watches its predecessor.
  void await_watch(const RunningContender& waiting, std::size_t size) {
    await_queue(size);
    loop_.run_until([&] { return etcd().watchers() > 0; });
    ASSERT_FALSE(waiting.is_done());
  }

  TempDir dir_;
  std::optional<Etcd> etcd_;
  TestLoop loop_;
};

TEST_F(EtcdClient, GrantIsAKeyWithALease) {
  const auto before = std::chrono::system_clock::now() - milliseconds(1);
  const auto first = contender(lock("30s"));
  const BootClock::time_point asked = BootClock::now();
  const Lease lease = first->acquire();
  EXPECT_GT(lease.generation, 1U);
  EXPECT_GT(lease.granted_at, before);
  EXPECT_EQ(lease.renewed.ttl, seconds(30));
  EXPECT_GE(lease.renewed.sent, asked);
  EXPECT_LE(lease.renewed.sent, BootClock::now());
  const std::vector<std::string> queue = keys();
  ASSERT_THAT(queue, SizeIs(1));
  EXPECT_THAT(queue[0], testing::MatchesRegex("x/[0-9a-f]{16}"));
  EXPECT_THAT(etcd().run_etcdctl({"get", "--print-value-only", queue[0]}),
              HasSubstr(R"("holder":"engine-0")"));
  EXPECT_THAT(etcd().run_etcdctl({"lease", "timetolive", "--keys", queue[0].substr(2)}),
              HasSubstr(queue[0]));
  first->release();
  EXPECT_THAT(keys(), IsEmpty());
}

TEST_F(EtcdClient, TurnsComeInTheOrderOfAskingWithoutPolling) {
  // Renewals come after a third of the lease, which is far longer than this test may take.
  const LockUri uri = lock("1h");
  const auto first = contender(uri);
  first->acquire();
  std::vector<std::unique_ptr<RunningContender>> queue;
  std::vector<std::string> ids;
  for (std::size_t i = 0; i < 8; ++i) {
    ids.push_back("q" + std::to_string(i));
    queue.push_back(contender(uri, ids.back()));
    queue.back()->ask();
    await_queue(i + 2);
  }
  EXPECT_EQ(waiting_ids(), ids);
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const auto& other : queue) EXPECT_EQ(other->has_it(), i > 0 && other == queue[i - 1]);
    (i == 0 ? first : queue[i - 1])->release();
    const Lease lease = queue[i]->await();
    EXPECT_GT(lease.generation, last);
    last = lease.generation;
  }
}

TEST_F(EtcdClient, LeaseThatIsNotRenewedGoesToTheNextWhenItIsOver) {
  const auto first = contender(lock("1s"));
  const auto second = contender(lock("1s"), "engine-1");
  const Lease lease = first->acquire();
  second->ask();
  const Lease next = second->await();
  EXPECT_GE(BootClock::now(), lease.renewed.sent + lease.renewed.ttl);
  EXPECT_GT(next.generation, lease.generation);
  const auto answer = first->renew();
  ASSERT_TRUE(std::holds_alternative<LeaseEnded>(answer));
  EXPECT_EQ(std::get<LeaseEnded>(answer).status, ExitStatus::kTryAgain);
  EXPECT_EQ(std::get<LeaseEnded>(answer).reason, "the lease expired or was lost");
}

TEST_F(EtcdClient, RenewedLeaseOutlivesItsTime) {
  const auto first = contender(lock("1s"));
  const auto second = contender(lock("1s"), "engine-1");
  Lease lease = first->acquire();
  second->ask();
  const BootClock::time_point end = lease.renewed.sent + 2 * seconds(1);
  while (BootClock::now() < end) {
    const auto answer = first->renew();
    ASSERT_TRUE(std::holds_alternative<Renewal>(answer));
    EXPECT_GT(std::get<Renewal>(answer).sent, lease.renewed.sent);
    EXPECT_EQ(std::get<Renewal>(answer).ttl, seconds(1));
    lease.renewed = std::get<Renewal>(answer);
    loop_.run(loop::pause_for(milliseconds(100)));
    EXPECT_FALSE(second->is_done());
  }
}

TEST_F(EtcdClient, WhatIsRevokedOrDeletedByHandIsLost) {
  const auto first = contender(lock("30s"));
  first->acquire();
  const std::string name = keys().at(0);
  etcd().run_etcdctl({"del", name});
  auto answer = first->renew();
  ASSERT_TRUE(std::holds_alternative<LeaseEnded>(answer));
  EXPECT_EQ(std::get<LeaseEnded>(answer).reason, "the key was deleted");
  first->release();
  const Lease again = first->acquire();
  EXPECT_GT(again.generation, 0U);
  EXPECT_TRUE(first->renews());
  etcd().run_etcdctl({"lease", "revoke", keys().at(0).substr(2)});
  answer = first->renew();
  ASSERT_TRUE(std::holds_alternative<LeaseEnded>(answer));
  EXPECT_EQ(std::get<LeaseEnded>(answer).reason, "the lease expired or was lost");
}

TEST_F(EtcdClient, KeyThatWasDeletedAndPutAgainIsNotOurs) {
  const auto first = contender(lock("30s"));
  first->acquire();
  const std::string name = keys().at(0);
  etcd().run_etcdctl({"del", name});
  etcd().run_etcdctl({"put", "--lease=" + name.substr(2), name, "thief"});
  EXPECT_FALSE(first->renews());
}

TEST_F(EtcdClient, WaiterWhoseKeyOrLeaseIsTakenAwayQueuesAgain) {
  const auto first = contender(lock("3s"));
  const auto second = contender(lock("3s"), "engine-1");
  first->acquire();
  for (const bool revoke : {false, true}) {
    second->ask();
    await_watch(*second, 2);
    const std::string name = keys().at(1);
    if (revoke) {
      etcd().run_etcdctl({"lease", "revoke", name.substr(2)});
    } else {
      etcd().run_etcdctl({"del", name});
    }
    EXPECT_THAT(keys(), SizeIs(1));
    const Deadline deadline = soon();
    while (keys().size() != 2) {
      ASSERT_FALSE(deadline.expired());
      ASSERT_TRUE(first->renews());
    }
    second->cancel();
    second->release();
  }
}

TEST_F(EtcdClient, HolderGoesOnOverACrashOfEtcd) {
  const auto first = contender(lock("3s"));
  const Lease lease = first->acquire();
  etcd().kill();
  const auto failure = test::failure_of([&] { first->renew(milliseconds(300)); });
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_THAT(failure.message, HasSubstr(etcd().url()));
  etcd().start();
  EXPECT_TRUE(first->renews());
  EXPECT_EQ(query_etcd(lock("3s"), soon()).record->generation, lease.generation);
}

TEST_F(EtcdClient, WaiterKeepsItsPlaceOverACrashOfEtcd) {
  const auto first = contender(lock("5s"));
  Proxy proxy(loop_.io(), etcd().port());
  const auto second = contender(test::etcd_lock(proxy.address(), "x", "?ttl=5s"), "engine-1");
  first->acquire();
  second->ask();
  await_watch(*second, 2);
  const auto queue = keys();
  etcd().kill();
  loop_.run_until([&] { return proxy.refused > 0; });
  etcd().start();
  EXPECT_TRUE(first->renews());
  EXPECT_EQ(keys(), queue);
  first->release();
  second->await();
  EXPECT_THAT(keys(), ElementsAre(queue[1]));
}

TEST_F(EtcdClient, LostDataIsALostLockAndANewQueue) {
  const auto first = contender(lock("2s"));
  const auto second = contender(lock("2s"), "engine-1");
  const Lease lease = first->acquire();
  second->ask();
  await_watch(*second, 2);
  etcd().kill();
  etcd().start_without_data();
  const auto answer = first->renew();
  ASSERT_TRUE(std::holds_alternative<LeaseEnded>(answer));
  EXPECT_EQ(std::get<LeaseEnded>(answer).status, ExitStatus::kTryAgain);
  second->await();
  EXPECT_GE(BootClock::now(), lease.renewed.sent + lease.renewed.ttl);
  EXPECT_TRUE(second->renews());
}

TEST_F(EtcdClient, DataLostForLongerThanTheWaitersLeaseIsNoTurn) {
  const auto first = contender(lock("1s"));
  const auto second = contender(lock("1s"), "engine-1");
  first->acquire();
  second->ask();
  await_queue(2);
  etcd().kill();
  loop_.run(loop::pause_for(seconds(1)));
  // A holder may have renewed just before etcd's death, and again after its start.
  const BootClock::time_point back = BootClock::now();
  etcd().start_without_data();
  second->await();
  EXPECT_GE(BootClock::now(), back + seconds(1));
}

TEST_F(EtcdClient, WaiterOutlastsWhatIsNoEtcdForAWhile) {
  const auto first = contender(lock("30s"));
  first->acquire();
  for (const std::string& answer :
       {http_answer("<html>maintenance</html>"), http_answer("Not Found\n", "404 Not Found"),
        http_answer("{}"), std::string("garbage\r\n\r\n")}) {
    Proxy proxy(loop_.io(), etcd().port());
    const auto second = contender(test::etcd_lock(proxy.address(), "x", "?ttl=2s"), "engine-1");
    second->ask();
    await_watch(*second, 2);
    const int before = proxy.connections;
    proxy.instead = answer;
    loop_.run_until([&] { return second->is_done() || proxy.connections >= before + 3; });
    EXPECT_FALSE(second->is_done()) << answer;
    proxy.instead.clear();
    first->release();
    second->await();
    second->release();
    first->acquire();
  }
}

TEST_F(EtcdClient, CompactionWhileWaitingChangesNothing) {
  const auto first = contender(lock("3s"));
  const auto second = contender(lock("3s"), "engine-1");
  first->acquire();
  second->ask();
  await_watch(*second, 2);
  etcd().run_etcdctl({"put", "other", "1"});
  const std::uint64_t revision = query_etcd(lock("3s"), soon()).record->generation + 2;
  etcd().run_etcdctl({"compact", std::to_string(revision)});
  EXPECT_TRUE(first->renews());
  await_watch(*second, 2);
  first->release();
  second->await();
}

TEST_F(EtcdClient, StoppedEtcdFailsWithinTheDeadline) {
  const auto first = contender(lock("30s"));
  first->acquire();
  etcd().signal(SIGSTOP);
  EXPECT_EQ(test::failure_of([&] { first->renew(milliseconds(200)); }).status,
            ExitStatus::kTryAgain);
  EXPECT_EQ(test::status_of([&] { query_etcd(lock("1s"), Deadline::after(milliseconds(100))); }),
            ExitStatus::kTryAgain);
  etcd().signal(SIGCONT);
  EXPECT_TRUE(first->renews());
}

TEST_F(EtcdClient, LockIsLostBeforeAnotherCanHaveIt) {
  for (const bool stopped : {true, false}) {
    const auto held = open_lock(lock("1s"), "engine-0");
    ASSERT_EQ(held->acquire(soon()).outcome, os::LockWait::kLocked);
    if (stopped) {
      etcd().signal(SIGSTOP);
    } else {
      etcd().kill();
    }
    std::optional<Loss> loss;
    const Deadline deadline = soon();
    while (!(loss = held->check())) {
      ASSERT_FALSE(deadline.expired());
      pollfd ready{held->watch().fd, POLLIN, 0};
      ::poll(&ready, 1, deadline.poll_timeout());
    }
    EXPECT_EQ(loss->status, ExitStatus::kTryAgain);
    EXPECT_EQ(loss->overlap, Duration::zero());
    EXPECT_FALSE(loss->is_overlap_known);
    EXPECT_FALSE(loss->end_by.expired());
    EXPECT_THAT(loss->reason, HasSubstr(etcd().url()));
    if (stopped) etcd().signal(SIGCONT);
    if (!stopped) etcd().start();
  }
}

TEST_F(EtcdClient, SlowEtcdIsWaitedFor) {
  Proxy proxy(loop_.io(), etcd().port());
  proxy.delay = milliseconds(40);
  const LockUri uri = test::etcd_lock(proxy.address(), "x", "?ttl=3s");
  const auto first = contender(uri);
  const auto second = contender(uri, "engine-1");
  first->acquire();
  second->ask();
  await_watch(*second, 2);
  EXPECT_TRUE(first->renews());
  first->release();
  second->await();
  proxy.delay = seconds(5);
  EXPECT_EQ(test::failure_of([&] { second->renew(milliseconds(200)); }).status,
            ExitStatus::kTryAgain);
}

TEST_F(EtcdClient, LostAnswersLeaveOneKeyAndOneHolder) {
  for (int lost = 1; lost <= 8; ++lost) {
    Proxy proxy(loop_.io(), etcd().port());
    proxy.lost = lost;
    const auto first = contender(test::etcd_lock(proxy.address(), "x", "?ttl=6s"));
    first->acquire();
    EXPECT_THAT(keys(), SizeIs(1)) << lost;
    const auto second = contender(test::etcd_lock(proxy.address(), "x", "?ttl=6s"), "engine-1");
    second->ask();
    await_watch(*second, 2);
    EXPECT_FALSE(second->is_done());
    first->release();
    second->await();
    EXPECT_THAT(keys(), SizeIs(1)) << lost;
    second->release();
    EXPECT_THAT(keys(), IsEmpty()) << lost;
    EXPECT_EQ(leases(), "found 0 leases\n") << lost;
  }
}

TEST_F(EtcdClient, CancelledAnywhereItLeavesNothingBehind) {
  const auto first = contender(lock("30s"));
  first->acquire();
  const std::ptrdiff_t fds = test::open_fds();
  for (int steps = 0; steps < 40; ++steps) {
    const auto second = contender(lock("30s"), "engine-1");
    second->ask();
    for (int i = 0; i < steps; ++i) {
      loop_.io().restart();
      loop_.io().run_one_for(milliseconds(5));
    }
    second->cancel();
    ASSERT_FALSE(second->has_it());
    second->release();
    ASSERT_THAT(keys(), SizeIs(1)) << steps;
    ASSERT_THAT(leases(), HasSubstr("found 1 leases\n")) << steps;
    ASSERT_EQ(test::open_fds(), fds);
  }
  EXPECT_TRUE(first->renews());
}

TEST_F(EtcdClient, ReleaseOfNothingNeedsNoServer) {
  const auto first = contender(lock("30s"));
  etcd().kill();
  first->release();
}

TEST_F(EtcdClient, ReleaseTriesUntilTheDeadline) {
  Proxy proxy(loop_.io(), etcd().port());
  const auto first = contender(test::etcd_lock(proxy.address(), "x", "?ttl=30s"));
  first->acquire();
  etcd().kill();
  first->begin_release();
  loop_.run_until([&] { return proxy.refused >= 2; });
  EXPECT_FALSE(first->is_done());
  etcd().start();
  first->await();
  EXPECT_THAT(keys(), IsEmpty());
}

TEST_F(EtcdClient, OneOfTwoServersIsEnough) {
  const test::ReservedPort unused;
  const std::string dead = "127.0.0.1:" + std::to_string(unused.number());
  const std::string alive = "127.0.0.1:" + std::to_string(etcd().port());
  for (const std::string& servers : {dead + "," + alive, alive + "," + dead}) {
    const LockUri uri = parse_lock_uri("etcd:http://" + servers + "/x?ttl=3s");
    const auto first = contender(uri);
    const auto second = contender(uri, "engine-1");
    first->acquire();
    second->ask();
    await_queue(2);
    EXPECT_EQ(query_etcd(uri, soon()).holder, "engine-0");
    EXPECT_TRUE(first->renews());
    first->release();
    second->await();
    second->release();
  }
}

TEST_F(EtcdClient, ServerThatDoesNotAnswerIsPassedOverWithinOneRenewal) {
  // Connections are established, but never accepted.
  tcp::acceptor deaf(loop_.io(), tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  const LockUri uri =
      parse_lock_uri("etcd:http://127.0.0.1:" + std::to_string(deaf.local_endpoint().port()) +
                     ",127.0.0.1:" + std::to_string(etcd().port()) + "/x?ttl=3s");
  const auto first = contender(uri);
  first->acquire();
  EXPECT_TRUE(std::holds_alternative<Renewal>(first->renew(milliseconds(500))));
}

TEST_F(EtcdClient, ServerThatIsNoEtcdIsPassedOver) {
  const std::string alive = "127.0.0.1:" + std::to_string(etcd().port());
  for (const std::string& answer :
       {http_answer("<html>"), http_answer("{}"), http_answer("Not Found\n", "404 Not Found"),
        http_answer(R"({"message":"etcdserver: permission denied","code":7})", "403 Forbidden"),
        http_answer(R"({"message":"etcdserver: no leader","code":14})", "503 No")}) {
    const Parrot parrot(loop_.io(), answer);
    const LockUri uri = parse_lock_uri("etcd:http://" + parrot.address() + "," + alive + "/x");
    const auto first = contender(uri);
    first->acquire();
    EXPECT_TRUE(first->renews());
    first->release();
    EXPECT_EQ(leases(), "found 0 leases\n");
  }
}

TEST_F(EtcdClient, NobodyThereIsUnavailableAfterAWhile) {
  const auto first = contender(lock("1h"));
  etcd().kill();
  const Deadline deadline = Deadline::after(kFirstContact - seconds(1));
  const auto failure = test::failure_of([&] { first->acquire(); });
  EXPECT_TRUE(deadline.expired());
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_THAT(failure.message, HasSubstr(etcd().url()));
}

// --- Servers that are not etcd.

TEST(EtcdParrot, AnswersThatAreNoneAreRefused) {
  const std::string header = R"("header":{"revision":"7"})";
  for (const std::string& answer :
       {std::string("garbage\r\n\r\n"), http_answer("hello"), http_answer("[]"), http_answer("{}"),
        http_answer(R"({"ID":"1"})"), http_answer(R"({"ID":"1","TTL":"99999999999"})"),
        http_answer(R"({"ID":"-1","TTL":"3"})"), http_answer(R"({"ID":1,"TTL":3})"),
        http_answer("Not Found\n", "404 Not Found"),
        http_answer("{" + header + R"(,"ID":"1","TTL":"3"})"),
        "HTTP/1.1 200 OK\r\n\r\n" + std::string(5 << 20, '[')}) {
    TestLoop loop;
    const Parrot parrot(loop.io(), answer);
    RunningContender contender(loop, parrot_lock(parrot), "engine-0");
    EXPECT_EQ(test::failure_of([&] { contender.acquire(); }).status, ExitStatus::kProtocol)
        << answer.substr(0, 80);
  }
}

// Of two servers, the unreachable one may be the only etcd.
TEST(EtcdParrot, WhatMayPassIsToldRatherThanWhatMayNot) {
  TestLoop loop;
  const test::ReservedPort unused;
  const std::string dead = "127.0.0.1:" + std::to_string(unused.number());
  const auto status_of = [&](const std::string& servers) {
    Deadline deadline = Deadline::after(seconds(5));
    std::thread loop_thread([&] { loop.io().run(); });
    const ExitStatus status = test::status_of(
        [&] { query_etcd(parse_lock_uri("etcd:http://" + servers + "/x"), deadline); });
    loop.io().stop();
    loop_thread.join();
    loop.io().restart();
    return status;
  };
  const Parrot parrot(loop.io(), http_answer("<html>"));
  EXPECT_EQ(status_of(parrot.address() + "," + dead), ExitStatus::kUnavailable);
  EXPECT_EQ(status_of(dead + "," + parrot.address()), ExitStatus::kUnavailable);
  EXPECT_EQ(status_of(parrot.address() + "," + parrot.address()), ExitStatus::kProtocol);
}

TEST(EtcdParrot, WatchesThatEndAtOnceAreNotAskedForWithoutAPause) {
  const std::string header = R"("header":{"revision":"5"})";
  for (const std::string& event :
       {std::string(R"("events":[{"type":"DELETE","kv":{"key":"eC8x","mod_revision":"6"}}])"),
        std::string(R"("canceled":true,"compact_revision":"9")")}) {
    std::string lease;
    TestLoop loop;
    const Parrot parrot(loop.io(), [&](const std::string& request) {
      const auto asks = [&](const char* what) { return request.find(what) != request.npos; };
      if (asks("/v3/lease/grant")) {
        const std::size_t begin = request.find(R"("ID":")") + 6;
        lease = R"("ID":")" + request.substr(begin, request.find('"', begin) - begin) + '"';
        return http_answer("{" + lease + R"(,"TTL":"30"})");
      }
      if (asks("/v3/watch")) return http_answer(R"({"result":{)" + header + "," + event + "}}\n");
      if (!asks("GREATER")) return http_answer("{" + header + R"(,"succeeded":true})");
      return http_answer("{" + header +
                         R"(,"responses":[{"response_range":{"kvs":[{"create_revision":"5"}]}},)" +
                         R"({"response_range":{"kvs":[{"key":"eC8x","create_revision":"4"}]}}]})");
    });
    RunningContender contender(loop, parrot_lock(parrot, "30s"), "engine-0");
    contender.ask();
    loop.run_until([&] { return parrot.answered >= 6; });
    loop.run(loop::pause_for(seconds(1)));
    EXPECT_FALSE(contender.is_done());
    EXPECT_LT(parrot.answered, 40);
    contender.cancel();
  }
}

// --- Other programs that lock by the same keys.

TEST_F(EtcdClient, QueuesBehindEtcdctl) {
  std::optional<Forked> other(std::in_place, [&](int ready) {
    const os::SpawnOptions options{.parent_death_signal = SIGKILL, .stdout_fd = ready};
    const os::Child child = os::spawn(etcd().etcdctl({"lock", "--ttl=2", "x"}), options);
    return child.wait(Deadline::never()).value_or(1);
  });
  // etcdctl prints its key.
  ASSERT_TRUE(other->read());
  const LockStatus status = query_etcd(lock("2s"), soon());
  EXPECT_TRUE(status.held);
  EXPECT_EQ(status.holder, "");
  EXPECT_GT(status.record->generation, 0U);
  EXPECT_THAT(to_text(status), Not(HasSubstr("since:")));
  const auto first = contender(lock("2s"));
  first->ask();
  await_watch(*first, 2);
  EXPECT_EQ(waiting_ids(), std::vector<std::string>{"engine-0"});
  other.reset();
  EXPECT_GT(first->await().generation, status.record->generation);
}

TEST_F(EtcdClient, EtcdctlQueuesBehindUs) {
  const auto first = contender(lock("30s"));
  first->acquire();
  Forked other([&](int ready) {
    const os::SpawnOptions options{.parent_death_signal = SIGKILL, .stdout_fd = ready};
    const os::Child child = os::spawn(etcd().etcdctl({"lock", "x", "echo", "12345678"}), options);
    return child.wait(Deadline::never()).value_or(1);
  });
  await_queue(2);
  EXPECT_EQ(waiting_ids(), std::vector<std::string>{""});
  first->release();
  EXPECT_TRUE(other.read());
  EXPECT_EQ(other.wait(), 0);
}

// --- Clusters.

class EtcdMembers : public EtcdClient {
 protected:
  // When the held lease is lost unless it is renewed; its watch wakes at that time.
  static BootClock::time_point lost_at(FailoverLock& lock) {
    itimerspec timer{};
    EXPECT_EQ(::timerfd_gettime(lock.watch().fd, &timer), 0);
    return BootClock::now() + seconds(timer.it_value.tv_sec) +
           std::chrono::nanoseconds(timer.it_value.tv_nsec);
  }
  void SetUp() override {
    WithEtcd::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) cluster_.emplace(dir_);
  }
  std::optional<test::EtcdCluster> cluster_;
};

TEST_F(EtcdMembers, LossOfTheLeaderIsOutlivedByHolderAndQueue) {
  for (const bool stopped : {true, false}) {
    SCOPED_TRACE(stopped ? "stopped" : "killed");
    const std::size_t leader = cluster_->leader();
    const LockUri uri = test::etcd_lock(cluster_->addresses(leader), "x", "?ttl=6s");
    const auto held = open_lock(uri, "engine-0");
    const FailoverLock::Result result = held->acquire(soon());
    ASSERT_EQ(result.outcome, os::LockWait::kLocked);
    const auto second = contender(uri, "engine-1");
    second->ask();
    loop_.run_until([&] { return query_etcd(uri, soon()).waiters.size() == 1; });
    if (stopped) {
      cluster_->member(leader).signal(SIGSTOP);
    } else {
      cluster_->member(leader).kill();
    }
    // Wait until the lease is renewed after the leader's end.
    const BootClock::time_point lost_without = BootClock::now() + seconds(4);
    loop_.run_until([&] { return held->check() || lost_at(*held) > lost_without; });
    EXPECT_FALSE(held->check());
    EXPECT_FALSE(second->is_done());
    const LockUri rest = test::etcd_lock(cluster_->addresses(leader + 1), "x");
    const LockStatus status = query_etcd(rest, soon());
    EXPECT_EQ(status.holder, "engine-0");
    EXPECT_EQ(status.waiters, (std::vector<Waiter>{{0, "engine-1"}}));
    held->release();
    EXPECT_GT(second->await().generation, result.grant.generation);
    EXPECT_TRUE(second->renews());
    second->release();
    if (stopped) {
      cluster_->member(leader).signal(SIGCONT);
    } else {
      cluster_->member(leader).launch();
    }
    cluster_->member(leader).await_ready();
  }
}

TEST_F(EtcdMembers, MemberWithoutALeaderSaysSoAndEndsItsWatches) {
  const LockUri all = test::etcd_lock(cluster_->addresses(), "x", "?ttl=1h");
  const LockUri lonely = test::etcd_lock(cluster_->member(0).address(), "x", "?ttl=1h");
  const auto first = contender(all);
  const auto second = contender(all, "engine-1");
  first->acquire();
  second->ask();
  loop_.run_until([&] { return query_etcd(all, soon()).waiters.size() == 1; });
  for (const std::size_t other : {1UL, 2UL}) cluster_->member(other).kill();
  test::await([&] { return !test::etcd_is_ready(cluster_->member(0).port()); });
  const auto failure = test::failure_of([&] { query_etcd(lonely, soon()); });
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_THAT(failure.message, HasSubstr("no leader"));
  const Etcd healthy(dir_);
  const LockUri mixed = parse_lock_uri("etcd:" + cluster_->member(0).url() + ",127.0.0.1:" +
                                       std::to_string(healthy.port()) + "/x?ttl=1h");
  contender(mixed)->acquire();
  EXPECT_FALSE(second->is_done());
  for (const std::size_t other : {1UL, 2UL}) cluster_->member(other).launch();
  for (const std::size_t any : {0UL, 1UL, 2UL}) cluster_->member(any).await_ready();
  first->release();
  second->await();
}

// --- A suspended process.

TEST_F(EtcdClient, WaiterThatWasStoppedTooLongQueuesAgain) {
  const auto first = contender(lock("1s"));
  first->acquire();
  Forked stopped([&](int ready) {
    const auto held = open_lock(lock("1s"), "stopped");
    const auto result = held->acquire(soon());
    say(ready, result.grant.generation);
    return test::pause_for_ever();
  });
  const auto hold_until_waiting = [&](RunningContender& holder,
                                      const std::vector<std::string>& ids) {
    const Deadline deadline = soon();
    while (waiting_ids() != ids) {
      ASSERT_FALSE(deadline.expired());
      ASSERT_TRUE(holder.renews());
    }
  };
  hold_until_waiting(*first, {"stopped"});
  ::kill(stopped.pid(), SIGSTOP);
  hold_until_waiting(*first, {});
  first->release();
  const auto second = contender(lock("1s"), "engine-1");
  const Lease lease = second->acquire();
  ::kill(stopped.pid(), SIGCONT);
  hold_until_waiting(*second, {"stopped"});
  second->release();
  EXPECT_GT(stopped.read().value_or(0), lease.generation);
}

// --- Users.

class EtcdUsers : public EtcdClient {
 protected:
  void SetUp() override {
    EtcdClient::SetUp();
    if (!etcd_) return;
    for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
             {"user", "add", "root:rootpw"},
             {"user", "grant-role", "root", "root"},
             {"role", "add", "locker"},
             {"role", "grant-permission", "locker", "readwrite", "--prefix", "x/"},
             {"user", "add", "engine:secret"},
             {"user", "grant-role", "engine", "locker"},
             {"auth", "enable"}}) {
      etcd().run_etcdctl(command);
    }
    spill(password_, "secret\n");
  }
  LockUri lock_of(const std::string& user, const std::string& key = "x") {
    return test::etcd_lock(etcd().address(), key,
                           "?ttl=5s&user=" + user + "&password-file=" + password_);
  }
  void run_as_root(std::vector<std::string> command) {
    command.insert(command.begin(), "--user=root:rootpw");
    etcd().run_etcdctl(command);
  }

  std::string password_ = dir_.path("password");
};

TEST_F(EtcdUsers, UserWithAPasswordHoldsTheLock) {
  const auto first = contender(lock_of("engine"));
  const auto second = contender(lock_of("engine"), "engine-1");
  first->acquire();
  second->ask();
  loop_.run_until([&] { return query_etcd(lock_of("engine"), soon()).waiters.size() == 1; });
  EXPECT_TRUE(first->renews());
  first->release();
  second->await();
  EXPECT_TRUE(second->renews());
}

TEST_F(EtcdUsers, TokenThatEtcdForgotIsReplaced) {
  const auto first = contender(lock_of("engine"));
  first->acquire();
  etcd().restart();
  EXPECT_TRUE(first->renews());
}

TEST_F(EtcdUsers, WaiterOutlastsAPasswordThatIsReplaced) {
  const auto first = contender(lock_of("engine"));
  const auto second = contender(lock_of("engine"), "engine-1");
  first->acquire();
  second->ask();
  loop_.run_until([&] { return query_etcd(lock_of("engine"), soon()).waiters.size() == 1; });
  std::filesystem::remove(password_);
  etcd().restart();
  loop_.run(loop::pause_for(milliseconds(300)));
  EXPECT_FALSE(second->is_done());
  spill(password_, "wrong");
  loop_.run(loop::pause_for(milliseconds(300)));
  EXPECT_FALSE(second->is_done());
  spill(password_, "secret");
  EXPECT_TRUE(first->renews());
  first->release();
  second->await();
}

TEST_F(EtcdUsers, PasswordIsReadWhenItIsNeeded) {
  const auto first = contender(lock_of("engine"));
  first->acquire();
  run_as_root({"user", "delete", "engine"});
  run_as_root({"user", "add", "engine:other"});
  run_as_root({"user", "grant-role", "engine", "locker"});
  EXPECT_EQ(test::failure_of([&] { first->renew(); }).status, ExitStatus::kNotPermitted);
  spill(password_, "other");
  EXPECT_TRUE(first->renews());
}

TEST_F(EtcdUsers, WhoMayNotIsToldSo) {
  const auto status = [&](const LockUri& uri) {
    const auto one = contender(uri);
    test::Failure failure = test::failure_of([&] { one->acquire(); });
    static_cast<void>(test::status_of([&] { one->release(); }));
    return failure;
  };
  EXPECT_EQ(status(lock_of("engine", "y")).status, ExitStatus::kNotPermitted);
  EXPECT_THAT(status(lock_of("engine", "y")).message,
              HasSubstr("query etcd '" + etcd().url() + "': 'etcdserver: permission denied'"));
  EXPECT_EQ(status(lock_of("nobody")).status, ExitStatus::kNotPermitted);
  EXPECT_EQ(status(lock("5s")).status, ExitStatus::kNotPermitted);
  EXPECT_EQ(test::status_of([&] { query_etcd(lock("5s"), soon()); }), ExitStatus::kNotPermitted);
  spill(password_, "wrong");
  const test::Failure wrong = status(lock_of("engine"));
  EXPECT_EQ(wrong.status, ExitStatus::kNotPermitted);
  EXPECT_THAT(wrong.message, HasSubstr("authentication failed"));
  spill(password_, "\xff");
  EXPECT_EQ(status(lock_of("engine")).status, ExitStatus::kConfig);
  std::filesystem::remove(password_);
  EXPECT_EQ(status(lock_of("engine")).status, ExitStatus::kNoInput);
  EXPECT_EQ(etcd().run_etcdctl({"--user=root:rootpw", "lease", "list"}), "found 0 leases\n");
}

TEST_F(EtcdUsers, EtcdWithoutUsersTakesThemAll) {
  const auto first = contender(lock_of("engine"));
  first->acquire();
  run_as_root({"auth", "disable"});
  EXPECT_TRUE(first->renews());
  contender(lock_of("somebody", "y"))->acquire();
}

// --- Queries.

TEST_F(EtcdClient, StatusTellsHolderAndWaiters) {
  const LockUri uri = lock("30s");
  EXPECT_FALSE(query_etcd(uri, soon()).held);
  const auto first = contender(uri);
  const auto second = contender(uri, "Motor Nº 1 \"links\"");
  const Lease lease = first->acquire();
  second->ask();
  await_queue(2);
  const LockStatus status = query_etcd(uri, soon());
  EXPECT_EQ(status.path, uri.path);
  EXPECT_TRUE(status.held);
  EXPECT_EQ(status.holder, "engine-0");
  ASSERT_TRUE(status.record);
  EXPECT_EQ(status.record->generation, lease.generation);
  EXPECT_EQ(status.last_generation, lease.generation);
  EXPECT_EQ(status.record->granted_at, text::format_time(lease.granted_at));
  EXPECT_EQ(status.record->host, os::host_name());
  EXPECT_EQ(status.record->pid, ::getpid());
  EXPECT_EQ(status.holder_state, HolderState::kNotVisible);
  EXPECT_EQ(status.waiters, (std::vector<Waiter>{{0, "Motor Nº 1 \"links\""}}));
  EXPECT_THAT(to_text(status),
              HasSubstr("Z on " + os::host_name() +
                        "\npid: not visible from here\nwaiter: not visible from here Motor"));
}

TEST_F(EtcdClient, OtherLocksAreNotSeen) {
  etcd().run_etcdctl({"put", "x", "1"});
  etcd().run_etcdctl({"put", "x0", "1"});
  etcd().run_etcdctl({"put", "xy/1", "1"});
  etcd().run_etcdctl({"put", "x.", "1"});
  EXPECT_FALSE(query_etcd(lock("1s"), soon()).held);
  contender(lock("1s"))->acquire();
}

}  // namespace
}  // namespace fo::lock
