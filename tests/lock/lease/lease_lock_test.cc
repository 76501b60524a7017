// The holder's side of a lease, with a simulated lock service.
#include "lock/lease/lease_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <optional>
#include <thread>

#include "base/error.h"
#include "lock/support.h"
#include "loop/pause.h"
#include "support/await.h"

namespace fo::lock {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::BootClock;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using os::LockWait;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// The lock service's behaviour and its counters; the lock's thread and the test's share them.
struct Keeper {
  std::atomic<bool> grants = true;
  std::atomic<bool> answers = true;
  /// Requests time out; if only `answers` is false, they are refused.
  std::atomic<bool> is_silent = false;
  std::atomic<bool> ended = false;
  std::atomic<bool> is_forbidden = false;
  /// Until then it blocks the lock's thread; afterwards it grants.
  Deadline busy_until = Deadline::after(milliseconds(0));
  std::atomic<bool> takes_release = true;
  std::atomic<int> acquired = 0;
  std::atomic<int> asked = 0;
  std::atomic<int> renewed = 0;
  std::atomic<int> released = 0;
  /// How long before its grant the last request was sent.
  std::atomic<milliseconds> delay = milliseconds(0);
  std::atomic<milliseconds> ttl = milliseconds(300);
  std::atomic<bool> has_timed_out = false;
};

class FakeClient final : public LeaseClient {
 public:
  explicit FakeClient(Keeper& keeper) : keeper_(keeper) {}

  awaitable<Step> advance() override {
    ++keeper_.acquired;
    if (keeper_.is_forbidden) throw Error(ExitStatus::kNotPermitted, "ask the keeper: forbidden");
    // A connection may set a timer that outlasts its operation.
    timer_.emplace(co_await asio::this_coro::executor, test::kLong);
    timer_->async_wait([&keeper = keeper_](const boost::system::error_code& ec) {
      keeper.has_timed_out = keeper.has_timed_out || !ec;
    });
    while (!keeper_.grants) co_await loop::pause_for(milliseconds(1));
    while (!keeper_.busy_until.expired()) std::this_thread::yield();
    co_await asio::post(asio::use_awaitable);
    Lease lease;
    lease.generation = ++generation_;
    lease.granted_at = std::chrono::system_clock::now();
    lease.renewed.sent = BootClock::now() - keeper_.delay.exchange(milliseconds(0));
    lease.renewed.ttl = keeper_.ttl.load();
    co_return lease;
  }

  awaitable<std::variant<Renewal, LeaseEnded>> renew(Deadline deadline) override {
    const BootClock::time_point sent = BootClock::now();
    ++keeper_.asked;
    while (keeper_.is_silent && !deadline.expired()) co_await loop::pause_for(milliseconds(1));
    if (keeper_.is_silent) throw Error(ExitStatus::kTryAgain, "ask the keeper: timed out");
    if (!keeper_.answers) throw Error(ExitStatus::kUnavailable, "ask the keeper: refused");
    if (keeper_.ended) co_return LeaseEnded{ExitStatus::kTryAgain, "somebody else has it"};
    ++keeper_.renewed;
    co_return Renewal{sent, keeper_.ttl.load()};
  }

  awaitable<bool> try_release(Deadline) override {
    ++keeper_.released;
    timer_.reset();
    if (!keeper_.takes_release) throw Error(ExitStatus::kUnavailable, "tell the keeper: refused");
    co_return true;
  }

  [[nodiscard]] bool is_reached() const override { return true; }

 private:
  Keeper& keeper_;
  std::optional<asio::steady_timer> timer_;
  std::uint64_t generation_ = 0;
};

class LeaseLockTest : public testing::Test {
 protected:
  // Waits like a holder; nullopt if the lock is still held at `deadline`.
  std::optional<Loss> await_loss(Deadline deadline) {
    while (!deadline.expired()) {
      if (auto loss = lock_.check()) return loss;
      const FailoverLock::Watch watch = lock_.watch();
      pollfd ready{watch.fd, watch.events, 0};
      ::poll(&ready, 1, watch.at.sooner(deadline).poll_timeout());
    }
    return std::nullopt;
  }
  LockWait acquire() { return lock_.acquire(Deadline::after(test::kLong)).outcome; }

  Keeper keeper_;
  LeaseLock lock_{"fake:lock", "engine-0", std::make_unique<FakeClient>(keeper_)};
};

TEST(LeaseTimes, EndBeforeTheLeaseCanEndElsewhere) {
  const BootClock::time_point sent{seconds(100)};
  const LeaseTimes times(Renewal{sent, seconds(30)});
  EXPECT_EQ(times.renew_at(), sent + seconds(10));
  EXPECT_EQ(times.lose_at(), sent + seconds(20));
  EXPECT_EQ(times.end_by(), sent + seconds(27));
  EXPECT_EQ(times.end(), sent + seconds(30));
}

TEST_F(LeaseLockTest, IsHeldForAsLongAsItIsRenewed) {
  ASSERT_EQ(acquire(), LockWait::kLocked);
  EXPECT_FALSE(await_loss(Deadline::after(milliseconds(900))));
  EXPECT_TRUE(lock_.is_confirmed());
  EXPECT_GE(keeper_.renewed, 3);
  EXPECT_TRUE(lock_.fds().empty());
}

TEST_F(LeaseLockTest, IsLostBeforeItEndsWhenItCantBeRenewed) {
  keeper_.ttl = seconds(3);
  keeper_.answers = false;
  const auto begin = BootClock::now();
  ASSERT_EQ(acquire(), LockWait::kLocked);
  const auto loss = await_loss(Deadline::after(test::kLong));
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->status, ExitStatus::kTryAgain);
  EXPECT_EQ(loss->reason, "the lease could not be renewed: ask the keeper: refused");
  EXPECT_EQ(loss->overlap, base::Duration::zero());
  EXPECT_LT(BootClock::now() - begin, seconds(3));
  EXPECT_FALSE(loss->end_by.expired());
  EXPECT_FALSE(lock_.is_confirmed());
  EXPECT_TRUE(lock_.check());
}

TEST_F(LeaseLockTest, IsLostInTimeWhenTheKeeperSaysNothing) {
  keeper_.ttl = seconds(3);
  keeper_.is_silent = true;
  const auto begin = BootClock::now();
  ASSERT_EQ(acquire(), LockWait::kLocked);
  ASSERT_TRUE(await_loss(Deadline::after(test::kLong)));
  EXPECT_LT(BootClock::now() - begin, seconds(3));
}

TEST_F(LeaseLockTest, IsConfirmedAgainWhenTheKeeperIsBack) {
  keeper_.ttl = seconds(3);
  ASSERT_EQ(acquire(), LockWait::kLocked);
  keeper_.answers = false;
  test::await([&] { return !lock_.is_confirmed(); });
  EXPECT_FALSE(lock_.check());
  keeper_.answers = true;
  // The watch reports the confirmation.
  const Deadline deadline = Deadline::after(test::kLong);
  while (!lock_.is_confirmed() && !deadline.expired()) {
    ASSERT_FALSE(lock_.check());
    const FailoverLock::Watch watch = lock_.watch();
    pollfd ready{watch.fd, watch.events, 0};
    ASSERT_EQ(::poll(&ready, 1, deadline.poll_timeout()), 1);
  }
  EXPECT_TRUE(lock_.is_confirmed());
}

TEST_F(LeaseLockTest, IsLostAtOnceWhenTheKeeperSaysSo) {
  keeper_.ttl = seconds(3);
  ASSERT_EQ(acquire(), LockWait::kLocked);
  keeper_.ended = true;
  const auto loss = await_loss(Deadline::after(test::kLong));
  ASSERT_TRUE(loss);
  // The lease may have ended at any time after the last answer.
  EXPECT_EQ(loss->reason.rfind("somebody else has it; another may have been active for up to ", 0),
            0U)
      << loss->reason;
  EXPECT_GT(loss->overlap, base::Duration::zero());
  EXPECT_TRUE(loss->end_by.expired());
}

TEST_F(LeaseLockTest, TellsForHowLongAnotherMayHaveBeenActive) {
  test::Forked holder([&](int ready) {
    LeaseLock lock("fake:lock", "engine-0", std::make_unique<FakeClient>(keeper_));
    lock.acquire(Deadline::after(test::kLong));
    test::say(ready, 1);
    while (!lock.check()) {
      const FailoverLock::Watch watch = lock.watch();
      pollfd wait{watch.fd, watch.events, 0};
      ::poll(&wait, 1, -1);
    }
    const Loss loss = *lock.check();
    test::say(ready,
              static_cast<std::uint64_t>(std::chrono::ceil<milliseconds>(loss.overlap).count()));
    test::say(ready, loss.end_by.expired() ? 1 : 0);
    const bool tells =
        loss.reason.find("another may have been active for up to") != std::string::npos;
    return tells ? 0 : 1;
  });
  ASSERT_TRUE(holder.read());
  ::kill(holder.pid(), SIGSTOP);
  // Its lease of 0.3 s ends meanwhile, and another one of that length could.
  const Deadline over = Deadline::after(2 * keeper_.ttl.load());
  test::await([&] { return over.expired(); });
  ::kill(holder.pid(), SIGCONT);
  const std::uint64_t overlap = holder.read().value_or(0);
  EXPECT_GE(overlap, 300U);
  EXPECT_LT(overlap, 10'000U);
  EXPECT_EQ(holder.read(), 1U);
  EXPECT_EQ(holder.wait(), 0);
}

TEST_F(LeaseLockTest, GivesUpWhatItWaitsForAtTheDeadline) {
  keeper_.grants = false;
  EXPECT_EQ(lock_.acquire(Deadline::after(milliseconds(20))).outcome, LockWait::kDeadline);
  EXPECT_EQ(keeper_.released, 1);
  keeper_.grants = true;
  EXPECT_EQ(acquire(), LockWait::kLocked);
}

TEST_F(LeaseLockTest, GivesUpWhatItWaitsForWhenItIsInterrupted) {
  keeper_.grants = false;
  const base::UniqueFd interrupt(::eventfd(1, EFD_CLOEXEC));
  EXPECT_EQ(lock_.acquire(Deadline::never(), interrupt.get()).outcome, LockWait::kInterrupted);
  EXPECT_EQ(keeper_.released, 1);
}

// The wait is cancelled after its end was queued: this late end must not coincide with renewals.
TEST_F(LeaseLockTest, AGrantAtTheDeadlineIsKept) {
  for (int i = 0; i < 5; ++i) {
    keeper_.busy_until = Deadline::after(milliseconds(5));
    ASSERT_EQ(lock_.acquire(keeper_.busy_until).outcome, LockWait::kLocked);
    const int renewed = keeper_.renewed;
    test::await([&] { return keeper_.renewed > renewed; });
    lock_.release();
  }
}

TEST_F(LeaseLockTest, TakesNoGrantThatIsAsGoodAsOver) {
  keeper_.delay = milliseconds(250);
  ASSERT_EQ(acquire(), LockWait::kLocked);
  EXPECT_EQ(keeper_.acquired, 2);
  EXPECT_EQ(keeper_.released, 1);
  EXPECT_FALSE(lock_.check());
}

TEST_F(LeaseLockTest, ReleaseTellsTheKeeperAndEndsTheRenewals) {
  ASSERT_EQ(acquire(), LockWait::kLocked);
  lock_.release();
  EXPECT_EQ(keeper_.released, 1);
  EXPECT_FALSE(lock_.is_confirmed());
  EXPECT_FALSE(lock_.check());
  EXPECT_LT(lock_.watch().fd, 0);
  const int renewed = keeper_.renewed;
  EXPECT_FALSE(await_loss(Deadline::after(milliseconds(400))));
  EXPECT_EQ(keeper_.renewed, renewed);
  ASSERT_EQ(acquire(), LockWait::kLocked);
  EXPECT_FALSE(lock_.check());
}

TEST_F(LeaseLockTest, ReleaseDoesNotWaitForATimerOfTheConnection) {
  ASSERT_EQ(acquire(), LockWait::kLocked);
  lock_.release();
  EXPECT_FALSE(keeper_.has_timed_out);
}

TEST_F(LeaseLockTest, AReleaseThatTheKeeperWasNotToldOfIsOneAllTheSame) {
  ASSERT_EQ(acquire(), LockWait::kLocked);
  keeper_.takes_release = false;
  lock_.release();
  EXPECT_FALSE(lock_.check());
  EXPECT_EQ(acquire(), LockWait::kLocked);
}

TEST_F(LeaseLockTest, LeavesNothingBehindWhenItCantBeAcquired) {
  keeper_.is_forbidden = true;
  EXPECT_EQ(test::status_of([&] { acquire(); }), ExitStatus::kNotPermitted);
  EXPECT_EQ(keeper_.released, 1);
}

TEST_F(LeaseLockTest, ALossIsToldAsItIsByThen) {
  ASSERT_EQ(acquire(), LockWait::kLocked);
  keeper_.answers = false;
  const auto first = await_loss(Deadline::after(test::kLong));
  ASSERT_TRUE(first);
  ASSERT_FALSE(first->end_by.expired());
  // The watch reports once more when the lease is over.
  const FailoverLock::Watch watch = lock_.watch();
  pollfd ready{watch.fd, watch.events, 0};
  ASSERT_EQ(::poll(&ready, 1, 10'000), 1);
  EXPECT_TRUE(lock_.check()->end_by.expired());
  test::await([&] { return lock_.check()->overlap > base::Duration::zero(); });
  EXPECT_NE(lock_.check()->reason.find("another may have been active"), std::string::npos);
  ready.fd = lock_.watch().fd;
  EXPECT_EQ(::poll(&ready, 1, 0), 0);
}

TEST_F(LeaseLockTest, AHolderThatCantBeWokenIsToldSo) {
  keeper_.ttl = seconds(60);
  ASSERT_EQ(acquire(), LockWait::kLocked);
  const base::UniqueFd no_timer(::eventfd(0, EFD_CLOEXEC));
  ASSERT_GE(::dup3(no_timer.get(), lock_.watch().fd, O_CLOEXEC), 0);
  EXPECT_EQ(test::status_of([&] { lock_.check(); }), ExitStatus::kOsError);
}

TEST_F(LeaseLockTest, IsGivenUpWithTheObjectWhileARenewalHangs) {
  {
    LeaseLock lock("fake:lock", "engine-1", std::make_unique<FakeClient>(keeper_));
    keeper_.ttl = seconds(60);
    keeper_.delay = seconds(20);
    keeper_.is_silent = true;
    ASSERT_EQ(lock.acquire(Deadline::after(test::kLong)).outcome, LockWait::kLocked);
    test::await([&] { return keeper_.asked > 0; });
  }
  EXPECT_EQ(keeper_.released, 1);
}

}  // namespace
}  // namespace fo::lock
