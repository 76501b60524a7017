// The lock of a gms-lockd on another machine, from a holder's view: with the real server behind a
// faulty network, and with servers whose answers the test chooses.
#include "lock/lockd/lockd_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "base/boot_clock.h"
#include "http/server.h"
#include "lock/lease/lease_lock.h"
#include "lock/lockd.h"
#include "lock/lockd/lockd_lock.h"
#include "lock/lockd/lockd_protocol.h"
#include "lock/lockd/lockd_state.h"
#include "lock/lockd/wire.h"
#include "loop/spawn.h"
#include "net/address.h"
#include "support/await.h"
#include "support/ports.h"
#include "support/soon.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

namespace asio = boost::asio;
using base::BootClock;
using base::Deadline;
using base::ExitStatus;
using base::UniqueFd;
using os::LockWait;
using std::chrono::milliseconds;
using test::kLong;
using test::Lockd;
using test::status_of;
using test::TempDir;

using fo::test::soon;

UniqueFd connect_to_port(std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return test::try_connect(fd.get(), port) == 0 ? std::move(fd) : UniqueFd();
}

// A network between a client and a server's port: it delays what it forwards, drops connections
// without closing them, or forwards nothing.
class Network {
 public:
  explicit Network(const std::string& server)
      : server_port_(net::parse_address(server).port),
        listener_(http::listen_tcp("127.0.0.1:0")),
        thread_([this] { run(); }) {}
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network() {
    stop_ = true;
    thread_.join();
  }

  [[nodiscard]] std::string address() const {
    return "127.0.0.1:" + std::to_string(listener_.port);
  }
  void delay(milliseconds each_way) { delay_ = each_way; }
  /// Present connections forward nothing any more, and are not closed.
  void forget() {
    forget_ = true;
    test::await([&] { return !forget_; });
  }
  /// Forwards nothing; what is sent waits.
  void cut(bool is_cut) { is_cut_ = is_cut; }
  /// Forwards to the server, but not from it.
  void cut_back() { is_cut_back_ = true; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Way {
    int from = -1;
    int to = -1;
    std::deque<std::pair<Clock::time_point, std::string>> pieces;
    bool ended = false;
  };
  struct Link {
    UniqueFd client;
    UniqueFd server;
    Way there;
    Way back;
    bool forgotten = false;
  };

  void run() {
    std::deque<Link> links;
    while (!stop_) {
      ::poll(nullptr, 0, 2);
      if (forget_) {
        for (Link& link : links) link.forgotten = true;
        forget_ = false;
      }
      if (is_cut_) continue;
      UniqueFd client(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client) {
        UniqueFd server = connect_to_port(server_port_);
        if (server) {
          const Way there{client.get(), server.get(), {}, false};
          const Way back{server.get(), client.get(), {}, false};
          links.push_back({std::move(client), std::move(server), there, back, false});
        }
      }
      for (Link& link : links) {
        if (link.forgotten) continue;
        carry(link.there);
        if (!is_cut_back_) carry(link.back);
      }
    }
  }

  void carry(Way& way) {
    std::array<char, 4096> bytes;
    const ssize_t got = way.ended ? -1 : ::recv(way.from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      way.pieces.emplace_back(Clock::now() + delay_.load(),
                              std::string(bytes.data(), static_cast<std::size_t>(got)));
    }
    if (got == 0 || (got < 0 && !way.ended && errno != EAGAIN)) {
      way.ended = true;
      way.pieces.emplace_back(Clock::now() + delay_.load(), "");
    }
    while (!way.pieces.empty() && way.pieces.front().first <= Clock::now()) {
      const std::string& piece = way.pieces.front().second;
      if (piece.empty()) ::shutdown(way.to, SHUT_WR);
      if (!piece.empty()) ::send(way.to, piece.data(), piece.size(), MSG_NOSIGNAL);
      way.pieces.pop_front();
    }
  }

  const std::uint16_t server_port_;
  http::Listener listener_;
  std::atomic<milliseconds> delay_{milliseconds(0)};
  std::atomic<bool> stop_ = false;
  std::atomic<bool> forget_ = false;
  std::atomic<bool> is_cut_ = false;
  std::atomic<bool> is_cut_back_ = false;
  std::thread thread_;
};

LockUri uri_of(const std::string& address) { return parse_lock_uri("tcp:" + address); }

LeaseLock make_lock(const std::string& address, const std::string& id) {
  const LockUri uri = uri_of(address);
  return {uri.path, id, make_lockd_client(uri, id)};
}

// The loss of a held lock; nullopt if it is held for `time`.
std::optional<Loss> hold(FailoverLock& lock, base::Duration time) {
  const Deadline end = Deadline::after(time);
  while (!end.expired()) {
    const FailoverLock::Watch watch = lock.watch();
    pollfd ready{watch.fd, watch.events, 0};
    ::poll(&ready, 1, end.sooner(watch.at).poll_timeout());
    if (const auto loss = lock.check()) return loss;
  }
  return std::nullopt;
}

class LockdClientTest : public testing::Test {
 protected:
  void start(const std::string& expiry = "10s") { lockd_ = Lockd::over_tcp(socket_, expiry); }
  [[nodiscard]] LockStatus status() const { return query_lockd(socket_, soon()); }
  void expect_soon(const std::function<bool(const LockStatus&)>& wanted) const {
    test::await([&] { return wanted(status()); });
  }

  TempDir dir_;
  std::string socket_ = dir_.path("s");
  std::unique_ptr<Lockd> lockd_;
};

TEST_F(LockdClientTest, HoldsForLongerThanALeaseAndHandsOverAtOnce) {
  start("2s");
  LeaseLock first = make_lock(lockd_->address(), "a");
  const auto granted = first.acquire(soon());
  ASSERT_EQ(granted.outcome, LockWait::kLocked);
  EXPECT_EQ(granted.grant.generation, 1U);
  EXPECT_TRUE(first.is_confirmed());
  FailoverLock::Result second;
  std::thread waiter([&] {
    LeaseLock lock = make_lock(lockd_->address(), "b");
    second = lock.acquire(soon());
  });
  expect_soon([](const LockStatus& now) { return now.waiters.size() == 1; });
  EXPECT_EQ(hold(first, std::chrono::seconds(3)), std::nullopt);
  EXPECT_EQ(status().holder, "a");
  EXPECT_EQ(status().waiters.size(), 1U);
  first.release();
  waiter.join();
  EXPECT_EQ(second.outcome, LockWait::kLocked);
  EXPECT_EQ(second.grant.generation, 2U);
  // Its destructor has released the lock at the server.
  EXPECT_FALSE(status().held);
}

TEST_F(LockdClientTest, TellsTheStatusWithoutPids) {
  start();
  LeaseLock lock = make_lock(lockd_->address(), "a");
  ASSERT_EQ(lock.acquire(soon()).outcome, LockWait::kLocked);
  LockdLock local(socket_, "b");
  static_cast<void>(local.acquire(Deadline::after(base::Duration::zero())));
  const LockStatus now = query_lockd_over_tcp(uri_of(lockd_->address()), soon());
  EXPECT_TRUE(now.held);
  EXPECT_EQ(now.holder, "a");
  EXPECT_EQ(now.last_generation, 1U);
  EXPECT_EQ(now.record->generation, 1U);
  EXPECT_EQ(now.record->pid, 0);
  EXPECT_TRUE(now.open_by.empty());
  lockd_->signal(SIGSTOP);
  EXPECT_EQ(status_of([&] {
              query_lockd_over_tcp(uri_of(lockd_->address()), Deadline::after(milliseconds(50)));
            }),
            ExitStatus::kTryAgain);
  lockd_->signal(SIGKILL);
  const auto failure =
      test::failure_of([&] { query_lockd_over_tcp(uri_of(lockd_->address()), soon()); });
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_EQ(failure.message, "connect to " + lockd_->address() + ": Connection refused");
}

TEST_F(LockdClientTest, AWaiterThatGivesUpLeavesTheQueue) {
  start("10s");
  LeaseLock first = make_lock(lockd_->address(), "a");
  ASSERT_EQ(first.acquire(soon()).outcome, LockWait::kLocked);
  LeaseLock second = make_lock(lockd_->address(), "b");
  EXPECT_EQ(second.acquire(Deadline::after(milliseconds(200))).outcome, LockWait::kDeadline);
  EXPECT_TRUE(status().waiters.empty());
  first.release();
  EXPECT_EQ(second.acquire(soon()).grant.generation, 2U);
}

TEST_F(LockdClientTest, AServerThatStopsIsALossBeforeAnotherCanBeGranted) {
  start("1s");
  LeaseLock lock = make_lock(lockd_->address(), "a");
  ASSERT_EQ(lock.acquire(soon()).outcome, LockWait::kLocked);
  const auto stopped = BootClock::now();
  lockd_->signal(SIGSTOP);
  const std::optional<Loss> loss = hold(lock, kLong);
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->status, ExitStatus::kTryAgain);
  EXPECT_EQ(loss->overlap, base::Duration::zero());
  EXPECT_FALSE(lock.is_confirmed());
  // There is time to end the command before another process can be granted the lock.
  EXPECT_LT(BootClock::now() - stopped, milliseconds(1000));
  EXPECT_FALSE(loss->end_by.expired());
  lockd_->signal(SIGCONT);
}

TEST_F(LockdClientTest, AServerThatIsStartedAnewGivesTheSameGrantBack) {
  start("10s");
  LeaseLock lock = make_lock(lockd_->address(), "a");
  ASSERT_EQ(lock.acquire(soon()).grant.generation, 1U);
  FailoverLock::Result second;
  std::thread waiter([&second, address = lockd_->address()] {
    LeaseLock other = make_lock(address, "b");
    second = other.acquire(soon());
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(lockd_->signal(SIGKILL), 128 + SIGKILL);
    lockd_->start();
    const auto is_back = [](const LockStatus& now) {
      return now.holder == "a" && !now.window_left && now.waiters.size() == 1;
    };
    const Deadline deadline = soon();
    while (!is_back(status()) && !deadline.expired()) {
      EXPECT_EQ(hold(lock, milliseconds(10)), std::nullopt);
    }
    EXPECT_TRUE(is_back(status()));
  }
  EXPECT_EQ(status().last_generation, 1U);
  lock.release();
  waiter.join();
  EXPECT_EQ(second.grant.generation, 2U);
}

TEST_F(LockdClientTest, AServerThatLostItsStateGivesNobodyElseTheLock) {
  start("6s");
  LeaseLock lock = make_lock(lockd_->address(), "a");
  ASSERT_EQ(lock.acquire(soon()).grant.generation, 1U);
  EXPECT_EQ(lockd_->signal(SIGKILL), 128 + SIGKILL);
  std::filesystem::remove(socket_ + ".state");
  lockd_->start();
  std::atomic<bool> is_granted = false;
  std::thread waiter([&] {
    LeaseLock other = make_lock(lockd_->address(), "b");
    is_granted = other.acquire(soon()).outcome == LockWait::kLocked;
  });
  EXPECT_EQ(hold(lock, std::chrono::seconds(7)), std::nullopt);
  EXPECT_EQ(status().holder, "a");
  EXPECT_EQ(status().last_generation, 1U);
  EXPECT_FALSE(is_granted);
  lock.release();
  waiter.join();
  EXPECT_TRUE(is_granted);
}

TEST_F(LockdClientTest, AHolderThatIsCutOffEndsBeforeTheOther) {
  start("1s");
  Network network(lockd_->address());
  LeaseLock lock = make_lock(network.address(), "a");
  ASSERT_EQ(lock.acquire(soon()).grant.generation, 1U);
  network.cut(true);
  LeaseLock other = make_lock(lockd_->address(), "b");
  const std::optional<Loss> loss = hold(lock, kLong);
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->status, ExitStatus::kTryAgain);
  // The loss was found before another process could have the lock; it can't be freed by hand.
  EXPECT_EQ(loss->overlap, base::Duration::zero());
  EXPECT_TRUE(loss->is_overlap_known);
  EXPECT_EQ(status().holder, "a");
  EXPECT_EQ(other.acquire(soon()).grant.generation, 2U);
  network.cut(false);
  EXPECT_EQ(hold(other, milliseconds(500)), std::nullopt);
  EXPECT_EQ(status().holder, "b");
}

// The server still receives heartbeats and claims, but its answers are lost.
TEST_F(LockdClientTest, AHolderThatIsHeardAndHearsNothingEndsInTime) {
  start("1s");
  Network network(lockd_->address());
  LeaseLock lock = make_lock(network.address(), "a");
  ASSERT_EQ(lock.acquire(soon()).grant.generation, 1U);
  std::atomic<bool> is_granted = false;
  std::thread waiter([&] {
    LeaseLock other = make_lock(lockd_->address(), "b");
    is_granted = other.acquire(soon()).outcome == LockWait::kLocked;
  });
  expect_soon([](const LockStatus& now) { return now.waiters.size() == 1; });
  network.cut_back();
  const std::optional<Loss> loss = hold(lock, kLong);
  EXPECT_FALSE(is_granted);
  EXPECT_TRUE(loss);
  if (loss) {
    EXPECT_EQ(loss->status, ExitStatus::kTryAgain);
    EXPECT_EQ(loss->overlap, base::Duration::zero());
    EXPECT_FALSE(loss->end_by.expired());
  }
  EXPECT_EQ(status().holder, "a");
  waiter.join();
  EXPECT_TRUE(is_granted);
}

TEST_F(LockdClientTest, AConnectionThatIsForgottenIsMadeAnew) {
  start("6s");
  Network network(lockd_->address());
  LeaseLock lock = make_lock(network.address(), "a");
  ASSERT_EQ(lock.acquire(soon()).grant.generation, 1U);
  network.forget();
  EXPECT_EQ(hold(lock, std::chrono::seconds(7)), std::nullopt);
  EXPECT_EQ(status().last_generation, 1U);
  EXPECT_EQ(status().holder, "a");
  lock.release();
  EXPECT_FALSE(status().held);
}

TEST_F(LockdClientTest, AWaiterWhoseConnectionIsForgottenAsksAgain) {
  start("1s");
  Network network(lockd_->address());
  LockdLock holder(socket_, "a");
  ASSERT_EQ(holder.acquire(soon()).grant.generation, 1U);
  FailoverLock::Result granted;
  std::thread waiter([&] {
    LeaseLock lock = make_lock(network.address(), "b");
    granted = lock.acquire(soon());
  });
  const auto waits = [](const LockStatus& now) { return now.waiters.size() == 1; };
  expect_soon(waits);
  network.forget();
  expect_soon([](const LockStatus& now) { return now.waiters.empty(); });
  expect_soon(waits);
  holder.release();
  waiter.join();
  EXPECT_EQ(granted.grant.generation, 2U);
}

TEST_F(LockdClientTest, ASlowNetworkIsNoLoss) {
  start("6s");
  Network network(lockd_->address());
  network.delay(milliseconds(100));
  LeaseLock lock = make_lock(network.address(), "a");
  ASSERT_EQ(lock.acquire(soon()).grant.generation, 1U);
  EXPECT_EQ(hold(lock, std::chrono::seconds(7)), std::nullopt);
  EXPECT_EQ(status().last_generation, 1U);
  lock.release();
  EXPECT_FALSE(status().held);
}

TEST_F(LockdClientTest, AReleaseThatCannotBeToldEndsByItself) {
  start();
  Network network(lockd_->address());
  LeaseLock lock = make_lock(network.address(), "a");
  ASSERT_EQ(lock.acquire(soon()).grant.generation, 1U);
  network.cut(true);
  EXPECT_NO_THROW(lock.release());
  network.cut(false);
  EXPECT_EQ(lock.acquire(soon()).grant.generation, 2U);
}

// --- servers whose answers the test chooses

class FakeServer : public testing::Test {
 protected:
  LockdRequest receive() { return peer_->read_any(); }
  void say(const std::string& bytes) { peer_->send(bytes); }
  void say(const LockdAnswer& answer) { say(encode_answer(answer)); }
  // Accepts a client, expects its request and a heartbeat, and returns the heartbeat's number.
  std::uint64_t hear_question(const AcquireRequest& expected) {
    peer_.emplace(test::LockdPeer::accept(listener_.fd.get()));
    EXPECT_EQ(std::get<AcquireRequest>(receive()), expected);
    return std::get<HeartbeatRequest>(receive()).sequence;
  }
  static GrantedAnswer granted(std::uint64_t generation) {
    return {"a", generation, *text::parse_time("2026-11-21T05:33:00.123Z"), milliseconds(1000)};
  }
  [[nodiscard]] std::unique_ptr<LeaseClient> client() const {
    return make_lockd_client(uri_of("127.0.0.1:" + std::to_string(listener_.port)), "a");
  }
  // Returns the result of `call` while `server` runs on its own thread.
  template <typename Value>
  Value play(asio::awaitable<Value> call, std::function<void()> server) {
    std::thread thread(std::move(server));
    std::exception_ptr failure;
    std::optional<Value> result;
    loop_.restart();
    loop::spawn(loop_, loop::store(std::move(call), result), [&](std::exception_ptr error) {
      failure = std::move(error);
      // A timer of the client's connection may outlast the call.
      loop_.stop();
    });
    loop_.run();
    thread.join();
    if (failure) std::rethrow_exception(failure);
    return std::move(*result);
  }
  // A client that holds generation 4.
  std::unique_ptr<LeaseClient> holding() {
    auto holder = client();
    play(holder->acquire(), [this] {
      const std::uint64_t sequence = hear_question({"a"});
      say(granted(4));
      say(HeartbeatAnswer{sequence, milliseconds(3000)});
    });
    return holder;
  }

  http::Listener listener_ = http::listen_tcp("127.0.0.1:0");
  std::optional<test::LockdPeer> peer_;
  asio::io_context loop_{1};
};

TEST_F(FakeServer, ALeaseCountsFromBeforeTheRequestThatWasAnswered) {
  const auto before = BootClock::now();
  BootClock::time_point asked;
  const auto holder = client();
  const Lease lease = play(holder->acquire(), [&] {
    const std::uint64_t sequence = hear_question({"a"});
    asked = BootClock::now();
    say(HeartbeatAnswer{sequence, milliseconds(3000)});
    say(granted(4));
  });
  EXPECT_EQ(lease.generation, 4U);
  EXPECT_GE(lease.renewed.sent, before);
  EXPECT_LE(lease.renewed.sent, asked);
  EXPECT_EQ(lease.renewed.ttl, milliseconds(3000));
}

TEST_F(FakeServer, AGrantAfterALongWaitIsRenewedFirst) {
  const auto holder = client();
  BootClock::time_point last;
  const Lease lease = play(holder->acquire(), [&] {
    const std::uint64_t sequence = hear_question({"a"});
    say(HeartbeatAnswer{sequence, milliseconds(900)});
    say(WaitingAnswer{});
    const std::uint64_t second = std::get<HeartbeatRequest>(receive()).sequence;
    // This heartbeat is not answered before the grant.
    last = BootClock::now();
    say(granted(4));
    const std::uint64_t third = std::get<HeartbeatRequest>(receive()).sequence;
    EXPECT_EQ(third, second + 1);
    say(HeartbeatAnswer{third, milliseconds(900)});
  });
  EXPECT_GE(lease.renewed.sent, last);
}

TEST_F(FakeServer, WhatIsNoSuchLeaseIsRefused) {
  for (const std::string answer :
       {R"({"answer":"heartbeat","sequence":1,"expiry_ms":499})",
        R"({"answer":"heartbeat","sequence":1,"expiry_ms":3600001})",
        R"({"answer":"heartbeat","sequence":7,"expiry_ms":1000})", "nonsense"}) {
    const auto holder = client();
    EXPECT_EQ(status_of([&] {
                play(holder->acquire(), [&] {
                  hear_question({"a"});
                  say(answer + "\n");
                });
              }),
              ExitStatus::kProtocol)
        << answer;
  }
}

TEST_F(FakeServer, ALineWithoutEndIsRefused) {
  const auto holder = client();
  EXPECT_EQ(status_of([&] {
              play(holder->acquire(), [&] {
                hear_question({"a"});
                say(std::string(2 * kMaxAnswerBytes, ' '));
              });
            }),
            ExitStatus::kProtocol);
}

TEST_F(FakeServer, ARefusalOfAWaiterIsItsEnd) {
  const auto holder = client();
  EXPECT_EQ(status_of([&] {
              play(holder->acquire(), [&] {
                hear_question({"a"});
                say(RefusedAnswer{ExitStatus::kNotPermitted, "no"});
              });
            }),
            ExitStatus::kNotPermitted);
}

TEST_F(FakeServer, AConnectionThatEndsIsMadeAgainWithTheClaim) {
  const auto holder = holding();
  peer_.reset();
  const auto verdict = play(holder->renew(soon()), [&] {
    const std::uint64_t sequence = hear_question({"a", 4});
    // Until the claim is answered, an answered heartbeat does not confirm the lock.
    say(HeartbeatAnswer{sequence, milliseconds(3000)});
    say(granted(4));
  });
  EXPECT_TRUE(std::holds_alternative<Renewal>(verdict));
}

TEST_F(FakeServer, AClaimThatIsRefusedOrGrantedAnewIsTheEndOfTheLease) {
  for (const LockdAnswer& answer :
       {LockdAnswer(RefusedAnswer{ExitStatus::kTryAgain, "the grant of generation 4 is over"}),
        LockdAnswer(granted(5))}) {
    const auto holder = holding();
    peer_.reset();
    const auto verdict = play(holder->renew(soon()), [&] {
      const std::uint64_t sequence = hear_question({"a", 4});
      say(HeartbeatAnswer{sequence, milliseconds(3000)});
      say(answer);
    });
    ASSERT_TRUE(std::holds_alternative<LeaseEnded>(verdict));
    EXPECT_EQ(std::get<LeaseEnded>(verdict).status, ExitStatus::kTryAgain);
  }
}

TEST_F(FakeServer, AClaimGivesTheTokenBack) {
  const auto holder = client();
  GrantedAnswer with_token = granted(4);
  with_token.token = "0123456789abcdef0123456789abcdef";
  play(holder->acquire(), [&] {
    const std::uint64_t sequence = hear_question({"a"});
    say(with_token);
    say(HeartbeatAnswer{sequence, milliseconds(3000)});
  });
  peer_.reset();
  play(holder->renew(soon()), [&] {
    const std::uint64_t sequence = hear_question({"a", 4, with_token.token});
    say(with_token);
    say(HeartbeatAnswer{sequence, milliseconds(3000)});
  });
}

// It is unknown whether the server has processed the claim.
TEST_F(FakeServer, AClaimThatWasNotConfirmedIsMadeAgain) {
  const auto holder = holding();
  peer_.reset();
  std::uint64_t first = 0;
  EXPECT_EQ(status_of([&] {
              play(holder->renew(Deadline::after(milliseconds(200))), [&] {
                first = hear_question({"a", 4});
                say(HeartbeatAnswer{first, milliseconds(3000)});
              });
            }),
            ExitStatus::kTryAgain);
  const auto verdict = play(holder->renew(soon()), [&] {
    const std::uint64_t second = hear_question({"a", 4});
    EXPECT_GT(second, first);
    say(granted(4));
    say(HeartbeatAnswer{second, milliseconds(3000)});
  });
  EXPECT_TRUE(std::holds_alternative<Renewal>(verdict));
}

TEST_F(FakeServer, AWaiterWhoseGrantIsOverAsksForAPlaceAgain) {
  const auto holder = client();
  const Lease lease = play(holder->acquire(), [&] {
    hear_question({"a"});
    say(granted(4));
    peer_.reset();
    hear_question({"a", 4});
    say(RefusedAnswer{ExitStatus::kTryAgain, "the grant of generation 4 is over"});
    const std::uint64_t sequence = hear_question({"a"});
    say(HeartbeatAnswer{sequence, milliseconds(3000)});
    say(granted(5));
  });
  EXPECT_EQ(lease.generation, 5U);
}

TEST_F(FakeServer, AWaiterThatWasSilentForTooLongAsksForAPlaceAgain) {
  const auto holder = client();
  const Lease lease = play(holder->acquire(), [&] {
    const std::uint64_t first = hear_question({"a"});
    say(HeartbeatAnswer{first, milliseconds(500)});
    // Heartbeats are not answered any more, and then the lock is granted.
    const Deadline over = Deadline::after(milliseconds(500));
    while (!over.expired()) ::poll(nullptr, 0, 10);
    say(granted(4));
    const std::uint64_t sequence = hear_question({"a"});
    say(HeartbeatAnswer{sequence, milliseconds(3000)});
    say(granted(5));
  });
  EXPECT_EQ(lease.generation, 5U);
}

TEST_F(FakeServer, AnAnswerThatIsLateStillCounts) {
  const auto holder = holding();
  EXPECT_EQ(status_of([&] { play(holder->renew(Deadline::after(milliseconds(100))), [] {}); }),
            ExitStatus::kTryAgain);
  const auto after = BootClock::now();
  const auto verdict = play(holder->renew(soon()), [&] {
    const std::uint64_t first = std::get<HeartbeatRequest>(receive()).sequence;
    say(HeartbeatAnswer{first, milliseconds(3000)});
  });
  EXPECT_LT(std::get<Renewal>(verdict).sent, after);
}

TEST_F(FakeServer, AReleaseWaitsForTheEndOfTheConnection) {
  const auto holder = holding();
  const auto release = [](LeaseClient& lease) -> asio::awaitable<int> {
    co_await lease.release(soon());
    co_return 1;
  };
  EXPECT_EQ(play(release(*holder),
                 [&] {
                   EXPECT_TRUE(std::holds_alternative<ReleaseRequest>(receive()));
                   say(granted(4));
                   peer_.reset();
                 }),
            1);
}

TEST(LockdClient, ANetworkTakesTls) {
  LeaseLock lock = make_lock("192.0.2.1:7777", "a");
  EXPECT_EQ(status_of([&] { static_cast<void>(lock.acquire(soon())); }), ExitStatus::kUsage);
  EXPECT_EQ(status_of([] { query_lockd_over_tcp(uri_of("192.0.2.1:7777"), soon()); }),
            ExitStatus::kUsage);
}

}  // namespace
}  // namespace fo::lock
