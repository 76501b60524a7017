#include "engine/gms_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>

#include "gms/client/rpc_client.h"
#include "gms/fake_server.h"
#include "gms/gms_process.h"
#include "gms/server/plain_relay.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/stderr_text.h"

namespace fo::engine {
namespace {

using namespace std::chrono_literals;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using gms::LockType;
using gms::RpcClient;
using test::failure_of;
using test::in_ms;
using test::soon;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

class GmsWatchTest : public gms::OneServer {
 protected:
  void SetUp() override {
    OneServer::SetUp();
    make(10s);
  }
  void TearDown() override {
    watch_.reset();
    OneServer::TearDown();
  }
  void make(base::Duration grace, std::vector<std::string> sockets = {}) {
    if (sockets.empty()) sockets = {socket_};
    std::vector<GmsPlace> places;
    for (const std::string& socket : sockets) {
      places.push_back({socket, base::DeviceOrdinal(0), "weights"});
    }
    watch_ = std::make_unique<GmsWatch>(
        loop_.io().get_executor(), std::move(places), grace,
        [this](std::size_t i, bool up) {
          changes_.push_back(std::to_string(i) + (up ? "+" : "-"));
        },
        [this](const Error& error) {
          lost_.push_back({error.status(), error.what()});
        });
  }

  void publish(base::ByteCount size) const {
    RpcClient rpc = RpcClient::connect(socket_, soon());
    ASSERT_EQ(rpc.request_lock(LockType::kRw, soon()).grant, gms::Grant::kRw);
    rpc.put_metadata("tensor", rpc.allocate(size, "t").allocation_id, 0, "{}");
    rpc.commit();
  }
  void start_published() {
    start();
    publish(4096);
  }
  // Whether a writer gets the lock at once.
  [[nodiscard]] bool can_write() const {
    RpcClient rpc = RpcClient::connect(socket_, soon());
    return rpc.request_lock(LockType::kRw, in_ms(100)).grant.has_value();
  }
  void restart() {
    server_.reset();
    start();
  }
  static std::ptrdiff_t threads() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  }
  void learn(const Deadline& deadline = soon()) { loop_.run(watch_->learn(deadline)); }
  void hold(const Deadline& deadline = soon()) { loop_.run(watch_->hold(deadline)); }
  void start_learned() {
    start_published();
    learn();
  }
  void start_held() {
    start_published();
    hold();
  }
  void release() {
    watch_->release();
    loop_.run_ready();
  }

  test::TestLoop loop_;
  std::unique_ptr<GmsWatch> watch_;
  std::vector<std::string> changes_;
  std::vector<test::Failure> lost_;
};

TEST_F(GmsWatchTest, LearnsTheLayoutAndIsInNobodysWay) {
  start_learned();
  EXPECT_EQ(watch_->layout_hash(0).value().size(), 64u);
  EXPECT_FALSE(watch_->is_up(0));
  EXPECT_TRUE(can_write());
  EXPECT_TRUE(changes_.empty());
}

TEST_F(GmsWatchTest, HoldsAReadersLockUntilItLetsGo) {
  start_held();
  EXPECT_TRUE(watch_->is_up(0));
  EXPECT_FALSE(can_write());
  EXPECT_EQ(watch_->layout_hash(0).value().size(), 64u);
  release();
  EXPECT_FALSE(watch_->is_up(0));
  EXPECT_TRUE(can_write());
  EXPECT_THAT(changes_, ElementsAre("0+", "0-"));
  EXPECT_TRUE(lost_.empty());
}

TEST_F(GmsWatchTest, CanBeHeldAgain) {
  start_held();
  release();
  const std::ptrdiff_t before = test::open_fds();
  for (int i = 0; i < 3; ++i) {
    hold();
    release();
  }
  EXPECT_EQ(test::open_fds(), before);
  EXPECT_EQ(changes_.size(), 8u);
}

TEST_F(GmsWatchTest, AnotherLayoutIsStale) {
  start_learned();
  publish(4 << 20);
  const auto failure = failure_of([&] { hold(); });
  EXPECT_EQ(failure.status, ExitStatus::kBadData);
  EXPECT_THAT(failure.message, EndsWith(" instead of " + watch_->layout_hash(0).value()));
  EXPECT_FALSE(watch_->is_up(0));
  EXPECT_TRUE(can_write());
}

TEST_F(GmsWatchTest, TheSameLayoutPublishedAnewIsTheSame) {
  start_learned();
  restart();
  publish(4096);
  hold();
  EXPECT_TRUE(watch_->is_up(0));
}

TEST_F(GmsWatchTest, AServerThatStaysAwayIsUnavailableAtTheDeadline) {
  EXPECT_EQ(failure_of([&] { learn(in_ms(100)); }).status, ExitStatus::kUnavailable);
  start_learned();
  server_.reset();
  const auto failure = failure_of([&] { hold(in_ms(100)); });
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_THAT(failure.message, HasSubstr(socket_));
}

TEST_F(GmsWatchTest, AServerThatIsAwayIsWaitedFor) {
  start_learned();
  server_.reset();
  bool held = false;
  {
    const test::StderrText log;
    loop::spawn(loop_.io(), watch_->hold(soon()),
                [&](const std::exception_ptr& error) { held = !error; });
    loop_.run_until([&] { return log.contains("; waiting for it\n"); });
  }
  EXPECT_FALSE(held);
  start_published();
  loop_.run_until([&] { return held; });
  EXPECT_TRUE(watch_->is_up(0));
}

TEST_F(GmsWatchTest, AnotherLayoutIsNotWaitedFor) {
  start_learned();
  restart();
  publish(8 << 20);
  EXPECT_EQ(failure_of([&] { hold(Deadline::never()); }).status, ExitStatus::kBadData);
}

TEST_F(GmsWatchTest, TheCheckAsksAndHoldsNothing) {
  start_held();
  loop_.run(watch_->check(soon()));
  release();
  loop_.run(watch_->check(soon()));
  EXPECT_TRUE(can_write());
  restart();
  EXPECT_EQ(failure_of([&] { loop_.run(watch_->check(in_ms(100))); }).status,
            ExitStatus::kTryAgain);
  publish(8 << 20);
  EXPECT_EQ(failure_of([&] { loop_.run(watch_->check(soon())); }).status, ExitStatus::kBadData);
  server_.reset();
  EXPECT_EQ(failure_of([&] { loop_.run(watch_->check(Deadline::never())); }).status,
            ExitStatus::kUnavailable);
}

TEST_F(GmsWatchTest, NothingPublishedAndAWriterAtWorkAreTryAgain) {
  start();
  EXPECT_EQ(failure_of([&] { learn(in_ms(50)); }).status, ExitStatus::kTryAgain);
  publish(4096);
  RpcClient writer = RpcClient::connect(socket_, soon());
  ASSERT_TRUE(writer.request_lock(LockType::kRw, soon()).grant);
  const auto failure = failure_of([&] { hold(in_ms(50)); });
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
  EXPECT_EQ(failure.message, "GMS at '" + socket_ + "': Timeout waiting for lock ro");
}

TEST_F(GmsWatchTest, AWriterIsWaitedFor) {
  start();
  const std::string counted = path("relay.sock");
  const gms::PlainRelay relay(counted, socket_, gms::PlainRelay::Offer::kEverything);
  make(10s, {counted});
  RpcClient writer = RpcClient::connect(socket_, soon());
  ASSERT_TRUE(writer.request_lock(LockType::kRw, soon()).grant);
  bool held = false;
  loop::spawn(loop_.io(), watch_->hold(soon()),
              [&](const std::exception_ptr& error) { held = !error; });
  // The first attempt is over.
  loop_.run_until([&] { return relay.requests() >= 2; });
  EXPECT_FALSE(held);
  writer.put_metadata("tensor", writer.allocate(4096, "t").allocation_id, 0, "{}");
  writer.commit();
  loop_.run_until([&] { return held; });
}

TEST_F(GmsWatchTest, AServerThatSaysNothingIsTryAgainAndGarbageIsProtocol) {
  {
    const gms::FakeServer silent(socket_, {});
    EXPECT_EQ(failure_of([&] { hold(in_ms(50)); }).status, ExitStatus::kTryAgain);
  }
  ::unlink(socket_.c_str());
  const gms::FakeServer odd(socket_, {{"handshake_request", gms::garbage()}});
  EXPECT_EQ(failure_of([&] { hold(); }).status, ExitStatus::kProtocol);
  EXPECT_TRUE(changes_.empty());
}

TEST_F(GmsWatchTest, ASecondServerThatIsAwayFailsTheHold) {
  start_published();
  make(10s, {socket_, path("none.sock")});
  EXPECT_EQ(failure_of([&] { hold(in_ms(500)); }).status, ExitStatus::kUnavailable);
  EXPECT_TRUE(watch_->is_up(0));
  EXPECT_FALSE(watch_->is_up(1));
  release();
  EXPECT_TRUE(can_write());
}

TEST_F(GmsWatchTest, AServerThatComesBackInTimeWithTheSameLayoutIsNoLoss) {
  start_held();
  for (int i = 0; i < 2; ++i) {
    server_.reset();
    loop_.run_until([&] { return !watch_->is_up(0); });
    start();
    publish(4096);
    loop_.run_until([&] { return watch_->is_up(0); });
    EXPECT_FALSE(can_write());
  }
  EXPECT_THAT(changes_, ElementsAre("0+", "0-", "0+", "0-", "0+"));
  EXPECT_TRUE(lost_.empty());
}

TEST_F(GmsWatchTest, AServerThatStaysAwayIsLost) {
  make(100ms);
  start_held();
  server_.reset();
  loop_.run_until([&] { return !lost_.empty(); });
  EXPECT_EQ(lost_[0].status, ExitStatus::kUnavailable);
  EXPECT_THAT(lost_[0].message, HasSubstr("lost the weights: "));
  EXPECT_THAT(lost_[0].message, HasSubstr(socket_));
  EXPECT_THAT(lost_[0].message, EndsWith(", within 100ms"));
  EXPECT_EQ(lost_.size(), 1u);
}

TEST_F(GmsWatchTest, AServerThatIsBackWithNothingOrAnotherLayoutIsLost) {
  make(1s);
  start_held();
  restart();
  publish(4 << 20);
  loop_.run_until([&] { return !lost_.empty(); });
  EXPECT_EQ(lost_[0].status, ExitStatus::kUnavailable);
  EXPECT_THAT(lost_[0].message, HasSubstr(" instead of " + watch_->layout_hash(0).value()));
  // The lock was released.
  EXPECT_TRUE(can_write());
}

TEST_F(GmsWatchTest, EachServerIsLostForItself) {
  make(50ms, {socket_, path("b.sock")});
  start_published();
  const gms::GmsProcess other({"--socket-path", path("b.sock")});
  const std::string first = std::exchange(socket_, path("b.sock"));
  publish(8192);
  hold();
  socket_ = first;
  server_.reset();
  loop_.run_until([&] { return !lost_.empty(); });
  EXPECT_FALSE(watch_->is_up(0));
  EXPECT_TRUE(watch_->is_up(1));
}

TEST_F(GmsWatchTest, WhatWasLetGoIsNotMissed) {
  make(10ms);
  start_held();
  server_.reset();
  loop_.run_until([&] { return !watch_->is_up(0); });
  watch_->release();
  loop_.run_to_end();
  EXPECT_TRUE(lost_.empty());
}

TEST_F(GmsWatchTest, CanBeHeldAgainWhileTheFormerHoldIsStillMissed) {
  const std::ptrdiff_t before = threads();
  start_held();
  server_.reset();
  loop_.run_until([&] { return !watch_->is_up(0); });
  watch_->release();
  start_held();
  // Until the thread of the former hold has ended.
  loop_.run_until([&] { return threads() == before; });
  loop_.run_ready();
  EXPECT_TRUE(watch_->is_up(0));
  EXPECT_THAT(changes_, ElementsAre("0+", "0-", "0+"));
  release();
  EXPECT_TRUE(can_write());
}

TEST_F(GmsWatchTest, EndsWhileItWaitsForAServer) {
  make(1h);
  start_held();
  server_.reset();
  loop_.run_until([&] { return !watch_->is_up(0); });
  watch_.reset();
  loop_.run_to_end();
  EXPECT_TRUE(lost_.empty());
}

}  // namespace
}  // namespace fo::engine
