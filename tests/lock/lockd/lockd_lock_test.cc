#include "lock/lockd/lockd_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <thread>

#include "lock/lockd/wire.h"
#include "lock/support.h"
#include "os/socket/unix_socket.h"
#include "support/soon.h"

namespace fo::lock {
namespace {

using base::Deadline;
using base::ExitStatus;
using os::LockWait;
using test::kLong;
using test::status_of;
using test::TempDir;

using fo::test::soon;

using Peer = test::LockdPeer;

class LockdLockTest : public testing::Test {
 protected:
  void listen() { listener_ = os::listen_unix(path_); }
  Peer accept() { return Peer::accept(listener_.get()); }
  // Grants the lock, and closes the connection.
  void grant_and_go(std::uint64_t generation, int window_ms = 10000) {
    Peer peer = accept();
    peer.read();
    peer.say(granted(generation, window_ms));
  }
  // Runs `play` as the server, on its own thread.
  void serve(std::function<void()> play) {
    listen();
    server_ = std::thread(std::move(play));
  }
  void TearDown() override {
    if (server_.joinable()) server_.join();
  }
  // Waits for a loss, or until `good` returns true.
  static std::optional<Loss> follow(LockdLock& lock, const std::function<bool()>& good) {
    const Deadline deadline = soon();
    while (!deadline.expired()) {
      if (auto loss = lock.check()) return loss;
      if (good()) return std::nullopt;
      const FailoverLock::Watch watch = lock.watch();
      pollfd ready{watch.fd, watch.events, 0};
      ::poll(&ready, 1,
             watch.at.sooner(Deadline::after(std::chrono::milliseconds(5))).poll_timeout());
    }
    ADD_FAILURE() << "nothing happened";
    return std::nullopt;
  }
  static GrantedAnswer granted(std::uint64_t generation, int window_ms = 10000) {
    return {"engine-0", generation, {}, std::chrono::milliseconds(window_ms)};
  }

  TempDir dir_;
  std::string path_ = dir_.path("lock.sock");
  base::UniqueFd listener_;
  std::thread server_;
};

TEST_F(LockdLockTest, AsksWithItsIdAndALifelineAndTakesTheGrant) {
  std::optional<Peer> peer;
  serve([&] {
    peer.emplace(accept());
    EXPECT_EQ(peer->read(), (AcquireRequest{"engine-0", std::nullopt}));
    EXPECT_EQ(peer->fds().size(), 1U);
    peer->say(WaitingAnswer{"engine-1", 6, std::chrono::milliseconds(10000)});
    peer->say(granted(7));
  });
  auto lock = std::make_unique<LockdLock>(path_, "engine-0");
  const auto result = lock->acquire(soon());
  ASSERT_EQ(result.outcome, LockWait::kLocked);
  EXPECT_EQ(result.grant.generation, 7U);
  EXPECT_FALSE(lock->check());
  server_.join();
  EXPECT_EQ(::fcntl(lock->fds().at(0), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  const base::UniqueFd inherited(::fcntl(lock->fds().at(0), F_DUPFD_CLOEXEC, 3));
  lock.reset();
  pollfd end{inherited.get(), POLLOUT, 0};
  ::poll(&end, 1, 0);
  EXPECT_EQ(end.revents & POLLERR, 0) << "the server gave its end of the lifeline up";
}

TEST_F(LockdLockTest, LifelineEndsWithTheLastThatHasIt) {
  std::optional<Peer> peer;
  serve([&] {
    peer.emplace(accept());
    peer->read();
    peer->say(granted(1));
  });
  auto lock = std::make_unique<LockdLock>(path_, "engine-0");
  lock->acquire(soon());
  server_.join();
  base::UniqueFd inherited(::fcntl(lock->fds().at(0), F_DUPFD_CLOEXEC, 3));
  lock.reset();
  inherited.reset();
  EXPECT_TRUE(peer->lifeline_ends());
}

TEST_F(LockdLockTest, ServerThatComesLateIsReached) {
  // The reminder runs after the first attempt.
  const os::Reminder after_attempt{std::chrono::milliseconds(1), [&] {
                                     if (server_.joinable()) return;
                                     serve([&] {
                                       Peer peer = accept();
                                       peer.read();
                                       peer.say(granted(1));
                                     });
                                   }};
  LockdLock lock(path_, "engine-0");
  EXPECT_EQ(lock.acquire(soon(), -1, after_attempt).outcome, LockWait::kLocked);
}

TEST_F(LockdLockTest, ServerThatNeverComesIsUnavailable) {
  LockdLock lock(path_, "engine-0", std::chrono::milliseconds(120));
  EXPECT_EQ(status_of([&] { lock.acquire(Deadline::never()); }), ExitStatus::kUnavailable);
  EXPECT_EQ(lock.acquire(Deadline::after(std::chrono::milliseconds(10))).outcome,
            LockWait::kDeadline);
}

TEST_F(LockdLockTest, WaiterAsksAgainWhateverBecameOfTheServer) {
  serve([&] {
    accept().close();  // before the request is read
    accept().read();
    {
      Peer half = accept();
      half.read();
      half.say(WaitingAnswer{"engine-1", 6, std::chrono::milliseconds(1)});
      half.say(encode_answer(granted(7)).substr(0, 20));
    }
    Peer peer = accept();
    EXPECT_EQ(peer.read(), (AcquireRequest{"engine-0", std::nullopt}));
    EXPECT_EQ(peer.fds().size(), 1U);
    peer.say(granted(8));
  });
  // After contact with the server, the wait has no limit.
  LockdLock lock(path_, "engine-0");
  EXPECT_EQ(lock.acquire(soon()).grant.generation, 8U);
}

TEST_F(LockdLockTest, HolderAsksForItsOwnGrantAgain) {
  std::optional<Peer> peer;
  serve([&] {
    grant_and_go(5);
    accept().close();
    peer.emplace(accept());
    EXPECT_EQ(peer->read(), (AcquireRequest{"engine-0", 5}));
    EXPECT_EQ(peer->fds().size(), 1U);
    peer->say(WaitingAnswer{"engine-0", 5, std::chrono::milliseconds(10000)});
    peer->say(granted(5));
  });
  LockdLock lock(path_, "engine-0");
  lock.acquire(soon());
  EXPECT_TRUE(lock.is_confirmed());
  EXPECT_FALSE(follow(lock, [&] { return !lock.is_confirmed(); }));
  EXPECT_FALSE(follow(lock, [&] { return lock.is_confirmed(); }));
  EXPECT_TRUE(lock.is_confirmed()) << "it would be given up later";
}

TEST_F(LockdLockTest, AbandonedWaitLeavesNoLifelineBehind) {
  std::optional<Peer> first;
  std::optional<Peer> second;
  serve([&] {
    first.emplace(accept());
    first->read();
    second.emplace(accept());
    second->read();
    second->say(granted(2));
  });
  LockdLock lock(path_, "engine-0");
  const int fd = lock.fds().at(0);
  EXPECT_EQ(lock.acquire(Deadline::after(std::chrono::milliseconds(50))).outcome,
            LockWait::kDeadline);
  EXPECT_EQ(lock.acquire(soon()).outcome, LockWait::kLocked);
  server_.join();
  EXPECT_TRUE(first->lifeline_ends());
  EXPECT_EQ(lock.fds().at(0), fd);
}

TEST_F(LockdLockTest, ServerThatNeverAnswersIsUnavailable) {
  std::optional<Peer> peer;
  serve([&] { peer.emplace(accept()); });
  LockdLock lock(path_, "engine-0", std::chrono::milliseconds(50));
  EXPECT_EQ(status_of([&] { lock.acquire(Deadline::never()); }), ExitStatus::kUnavailable);
  server_.join();
}

TEST_F(LockdLockTest, HolderWhoseGrantIsOverHasLostItToAnother) {
  serve([&] {
    grant_and_go(5);
    Peer peer = accept();
    peer.read();
    peer.say(RefusedAnswer{ExitStatus::kTryAgain, "the grant of generation 5 is over"});
  });
  LockdLock lock(path_, "engine-0");
  lock.acquire(soon());
  const auto begin = base::BootClock::now();
  // Simulates a suspended process.
  constexpr auto kStopped = std::chrono::milliseconds(50);
  test::await([&] { return base::BootClock::now() - begin >= kStopped; });
  const auto loss = follow(lock, [] { return false; });
  ASSERT_TRUE(loss);
  EXPECT_TRUE(loss->is_overlap_known);
  EXPECT_GE(loss->overlap, kStopped);
  EXPECT_LE(loss->overlap, base::BootClock::now() - begin + std::chrono::seconds(1));
  EXPECT_EQ(loss->status, ExitStatus::kTryAgain);
  EXPECT_EQ(loss->reason, "the grant of generation 5 is over");
  EXPECT_TRUE(loss->end_by.expired());
  EXPECT_TRUE(lock.check()) << "what is lost stays lost";
}

TEST_F(LockdLockTest, NewGrantIsNoOldGrant) {
  serve([&] {
    grant_and_go(5);
    Peer peer = accept();
    peer.read();
    peer.say(granted(6));
  });
  LockdLock lock(path_, "engine-0");
  lock.acquire(soon());
  const auto loss = follow(lock, [] { return false; });
  ASSERT_TRUE(loss);
  EXPECT_TRUE(loss->end_by.expired());
}

TEST_F(LockdLockTest, ServerThatStaysAwayIsALostLock) {
  serve([&] {
    Peer peer = accept();
    peer.read();
    peer.say(granted(5, 1));
    listener_.reset();
  });
  LockdLock lock(path_, "engine-0");
  lock.acquire(soon());
  const auto loss = follow(lock, [] { return false; });
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->status, ExitStatus::kProtocol);
  EXPECT_EQ(loss->reason, "the lock server is unreachable");
  EXPECT_FALSE(loss->is_overlap_known);
  EXPECT_LE(loss->end_by.remaining(), std::chrono::milliseconds(1)) << "a new server's window";
}

TEST_F(LockdLockTest, ServerThatDoesNotConfirmIsALostLock) {
  serve([&] {
    grant_and_go(5, 1);
    Peer peer = accept();
    try {
      for (;;) peer.read();
    } catch (const std::runtime_error&) {
    }
  });
  {
    LockdLock lock(path_, "engine-0");
    lock.acquire(soon());
    const auto loss = follow(lock, [] { return false; });
    ASSERT_TRUE(loss);
    EXPECT_EQ(loss->status, ExitStatus::kProtocol);
  }
}

TEST_F(LockdLockTest, WhatIsNoAnswerBreaksTheProtocol) {
  for (const std::string& nonsense :
       {std::string("hello\n"), std::string("{}\n"), std::string("\n"),
        std::string(kMaxAnswerBytes + 1, 'x'), std::string("{\"answer\":\"granted\"}\n")}) {
    serve([&] {
      {
        Peer peer = accept();
        peer.read();
        peer.say(nonsense);
        peer.close();
      }
      Peer peer = accept();
      peer.read();
      peer.say(granted(5));
      peer.say(nonsense);
    });
    LockdLock lock(path_, "engine-0");
    EXPECT_EQ(status_of([&] { lock.acquire(soon()); }), ExitStatus::kProtocol);
    LockdLock held(path_, "engine-0");
    ASSERT_EQ(held.acquire(soon()).outcome, LockWait::kLocked);
    const auto loss = follow(held, [] { return false; });
    ASSERT_TRUE(loss);
    EXPECT_EQ(loss->status, ExitStatus::kProtocol);
    EXPECT_FALSE(loss->end_by.expired());
    server_.join();
    listener_.reset();
    ::unlink(path_.c_str());
  }
}

TEST_F(LockdLockTest, RefusalIsToldWithItsStatus) {
  serve([&] {
    Peer peer = accept();
    peer.read();
    peer.say(RefusedAnswer{ExitStatus::kNotPermitted, "not your lock"});
  });
  LockdLock lock(path_, "engine-0");
  const auto failure = test::failure_of([&] { lock.acquire(soon()); });
  EXPECT_EQ(failure.status, ExitStatus::kNotPermitted);
  EXPECT_EQ(failure.message, "acquire lock '" + path_ + "': not your lock");
}

TEST_F(LockdLockTest, PathThatIsTooLongIsAUsageError) {
  EXPECT_EQ(status_of([] { LockdLock("/" + std::string(200, 'x'), "engine-0"); }),
            ExitStatus::kUsage);
}

TEST_F(LockdLockTest, StatusOfAServerThatSaysNothingOrNonsense) {
  const auto ask = [&](base::Duration limit) {
    return status_of([&] { query_lockd(path_, Deadline::after(limit)); });
  };
  EXPECT_EQ(ask(kLong), ExitStatus::kUnavailable);
  listen();
  EXPECT_EQ(ask(std::chrono::milliseconds(20)), ExitStatus::kTryAgain);
  const auto answered_with = [&](const std::string& bytes) {
    std::thread server([&] {
      Peer peer = accept();
      peer.read_any();
      peer.say(bytes);
    });
    const ExitStatus status = ask(kLong);
    server.join();
    return status;
  };
  static_cast<void>(accept());  // the client that has timed out
  EXPECT_EQ(answered_with(""), ExitStatus::kProtocol);
  EXPECT_EQ(answered_with("x\n"), ExitStatus::kProtocol);
  EXPECT_EQ(answered_with(encode_answer(granted(1))), ExitStatus::kProtocol);
  EXPECT_EQ(answered_with(encode_answer(StatusAnswer{}).substr(0, 30)), ExitStatus::kProtocol);
  EXPECT_EQ(answered_with(encode_answer(RefusedAnswer{ExitStatus::kNotPermitted, "no"})),
            ExitStatus::kNotPermitted);
  EXPECT_EQ(answered_with(encode_answer(StatusAnswer{})), ExitStatus::kOk);
}

TEST_F(LockdLockTest, PidsOfAnotherNamespaceAreNotShown) {
  listen();
  StatusAnswer told{.holder = "engine-0",
                    .generation = 3,
                    .connections = {{::getpid(), true}},
                    .waiters = {{"engine-1", ::getpid()}}};
  for (const bool ours : {true, false}) {
    told.pid_ns = os::own_pid_namespace() + (ours ? 0 : 1);
    std::thread server([&] {
      Peer peer = accept();
      peer.read_any();
      peer.say(told);
    });
    const LockStatus status = query_lockd(path_, soon());
    server.join();
    ASSERT_TRUE(status.record);
    EXPECT_EQ(status.record->generation, 3U);
    EXPECT_EQ(status.holder_state, ours ? HolderState::kRunning : HolderState::kNotVisible);
    EXPECT_EQ(status.open_by.size(), ours ? 1U : 0U);
    EXPECT_EQ(status.waiters, (std::vector<Waiter>{{ours ? ::getpid() : 0, "engine-1"}}));
  }
}

}  // namespace
}  // namespace fo::lock
