// Several file locks as one: the set works in the same way for all kinds.
#include "lock/lock_set.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <filesystem>

#include "lock/flock/flock_lock.h"
#include "lock/lock_status.h"
#include "lock/support.h"

namespace fo::lock {
namespace {

using base::Deadline;
using base::ExitStatus;
using os::LockWait;
using std::chrono::milliseconds;
using test::Forked;
using test::holder;
using test::kLong;
using test::TempDir;

// A lock with the given loss.
class LostLock final : public FailoverLock {
 public:
  LostLock(const std::string& path, Loss loss)
      : FailoverLock(path, "engine-0"), loss_(std::move(loss)) {}
  Result acquire(const Deadline&, int, const os::Reminder&) override { return {}; }
  Watch watch() override { return {}; }
  std::optional<Loss> check() override { return loss_; }
  [[nodiscard]] bool is_confirmed() const override { return false; }
  void release() override {}
  [[nodiscard]] std::vector<int> fds() const override { return {}; }

 private:
  Loss loss_;
};

class LockSetTest : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<FailoverLock> open(const std::string& id) const {
    return open_locks({{LockUri::Kind::kFlock, first_}, {LockUri::Kind::kFlock, second_}}, id);
  }
  [[nodiscard]] bool is_held(const std::string& path) const {
    return find_owner({LockUri::Kind::kFlock, path}).has_value();
  }
  void await_waiter(const std::string& path) const {
    test::await([&] { return !read_lock_status({LockUri::Kind::kFlock, path}).waiters.empty(); });
  }

  TempDir dir_;
  std::string first_ = dir_.path("first");
  std::string second_ = dir_.path("second");
};

TEST_F(LockSetTest, HoldsAllOfThem) {
  const auto set = open("engine-0");
  const auto result = set->acquire(Deadline::after(kLong));
  ASSERT_EQ(result.outcome, LockWait::kLocked);
  EXPECT_EQ(result.grant.id, "engine-0");
  EXPECT_EQ(result.grant.generation, 1U);
  EXPECT_EQ(set->path(), first_ + " and " + second_);
  EXPECT_TRUE(is_held(first_));
  EXPECT_TRUE(is_held(second_));
  EXPECT_FALSE(set->check());
  EXPECT_TRUE(set->is_confirmed());
  EXPECT_EQ(set->fds().size(), 2U);
  set->release();
  EXPECT_FALSE(is_held(first_));
  EXPECT_FALSE(is_held(second_));
  EXPECT_EQ(set->acquire(Deadline::after(kLong)).grant.generation, 2U);
}

TEST_F(LockSetTest, GivesTheFirstBackWhenTheSecondIsNotToBeHad) {
  Forked other(holder(second_, "engine-1"));
  ASSERT_EQ(other.read(), 1U);
  const auto set = open("engine-0");
  EXPECT_EQ(set->acquire(Deadline::after(milliseconds(50))).outcome, LockWait::kDeadline);
  EXPECT_FALSE(is_held(first_));
  const base::UniqueFd interrupt(::eventfd(1, EFD_CLOEXEC));
  EXPECT_EQ(set->acquire(Deadline::never(), interrupt.get()).outcome, LockWait::kInterrupted);
  EXPECT_FALSE(is_held(first_));
  other.kill();
  EXPECT_EQ(set->acquire(Deadline::after(kLong)).outcome, LockWait::kLocked);
}

TEST_F(LockSetTest, KeepsTheFirstWhileItWaitsForTheSecond) {
  Forked other(holder(second_, "engine-1"));
  ASSERT_EQ(other.read(), 1U);
  Forked waiter([&](int ready) {
    const auto set = open("engine-0");
    test::say(ready, set->acquire(Deadline::after(kLong)).grant.generation);
    return 0;
  });
  await_waiter(second_);
  EXPECT_EQ(find_owner({LockUri::Kind::kFlock, first_}), "engine-0");
  other.kill();
  EXPECT_EQ(waiter.read(), 1U);
}

TEST_F(LockSetTest, AFirstThatIsLostEndsTheWaitForTheSecond) {
  Forked other(holder(second_, "engine-1"));
  ASSERT_EQ(other.read(), 1U);
  Forked waiter([&](int ready) {
    const auto set = open("engine-0");
    const ExitStatus status = test::status_of([&] { set->acquire(Deadline::after(kLong)); });
    test::say(ready, static_cast<std::uint64_t>(base::to_int(status)));
    return 0;
  });
  await_waiter(second_);
  std::filesystem::remove(first_);
  EXPECT_EQ(waiter.read(), static_cast<std::uint64_t>(base::to_int(ExitStatus::kProtocol)));
}

TEST_F(LockSetTest, IsLostWithAnyOfThem) {
  const auto set = open("engine-0");
  ASSERT_EQ(set->acquire(Deadline::after(kLong)).outcome, LockWait::kLocked);
  ASSERT_FALSE(set->check());
  const FailoverLock::Watch watch = set->watch();
  std::filesystem::remove(second_);
  pollfd ready{watch.fd, watch.events, 0};
  EXPECT_EQ(::poll(&ready, 1, watch.at.poll_timeout()), 1);
  const auto loss = set->check();
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->status, ExitStatus::kProtocol);
  EXPECT_EQ(loss->reason.rfind(second_ + ": ", 0), 0U) << loss->reason;
}

TEST_F(LockSetTest, IsLostAsSoonAsTheMostUrgentOfThem) {
  const auto lost = [](const std::string& path, const std::string& reason,
                       std::chrono::seconds left, std::chrono::seconds overlap) {
    return std::make_unique<LostLock>(
        path, Loss{ExitStatus::kTryAgain, reason, Deadline::after(left), overlap});
  };
  std::vector<std::unique_ptr<FailoverLock>> locks;
  locks.push_back(lost("a", "not renewed", std::chrono::seconds(60), std::chrono::seconds(0)));
  locks.push_back(lost("b", "taken", std::chrono::seconds(0), std::chrono::seconds(7)));
  LockSet set("a and b", std::move(locks));
  const auto loss = set.check();
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->reason, "a: not renewed");
  EXPECT_TRUE(loss->end_by.expired());
  EXPECT_EQ(loss->overlap, std::chrono::seconds(7));
}

TEST_F(LockSetTest, AFileByTwoPathsWouldWaitForItself) {
  test::spill(first_, "");
  std::filesystem::create_directory_symlink(dir_.path(), dir_.path("folder"));
  for (const std::string& other : {dir_.path("/first"), dir_.path("folder/first")}) {
    EXPECT_EQ(test::status_of([&] {
                open_locks({{LockUri::Kind::kFlock, first_}, {LockUri::Kind::kFlock, other}}, "e");
              }),
              ExitStatus::kUsage)
        << other;
  }
}

TEST_F(LockSetTest, TheDescriptorToPlaceIsTheFirstFilesOne) {
  const auto set = open_locks({{LockUri::Kind::kFlock, first_}, {LockUri::Kind::kFlock, second_}},
                              "engine-0", 200);
  EXPECT_EQ(set->fds().front(), 200);
  EXPECT_EQ(
      test::status_of([&] {
        open_locks({{LockUri::Kind::kLockd, first_}, {LockUri::Kind::kLockd, second_}}, "e", 201);
      }),
      ExitStatus::kUsage);
}

}  // namespace
}  // namespace fo::lock
