// The contract of every kind of failover lock, tested in the same way on each.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "etcd/server.h"
#include "kube/api_server.h"
#include "lock/acquire.h"
#include "lock/failover_lock.h"
#include "lock/lock_status.h"
#include "lock/lockd.h"
#include "lock/support.h"
#include "support/await.h"
#include "support/soon.h"

namespace fo::lock {
namespace {

using base::Deadline;
using os::LockWait;
using test::Forked;
using test::say;
using test::slurp;
using test::spill;
using test::TempDir;

using fo::test::soon;

/// A place where locks of one kind can be created.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string uri(const std::string& name) = 0;
  /// Restarts the lock service, if there is one.
  virtual void restart() {}
};

class FlockBackend final : public Backend {
 public:
  explicit FlockBackend(const TempDir& dir) : dir_(dir) {}
  std::string uri(const std::string& name) override { return "flock:" + dir_.path(name); }

 private:
  const TempDir& dir_;
};

template <bool kOverTcp>
class LockdBackend final : public Backend {
 public:
  explicit LockdBackend(const TempDir& dir) : dir_(dir) {}
  std::string uri(const std::string& name) override {
    const std::string socket = dir_.path(name);
    std::unique_ptr<test::Lockd>& server = servers_[name];
    if (!server) {
      server = kOverTcp ? test::Lockd::over_tcp(socket) : std::make_unique<test::Lockd>(socket);
    }
    return kOverTcp ? "tcp:" + server->address() : "unix:" + socket;
  }
  void restart() override {
    for (auto& [name, server] : servers_) server->restart();
  }

 private:
  const TempDir& dir_;
  std::map<std::string, std::unique_ptr<test::Lockd>> servers_;
};

class EtcdBackend final : public Backend {
 public:
  explicit EtcdBackend(const TempDir& dir) : server_(dir) {}
  std::string uri(const std::string& name) override {
    return "etcd:" + server_.url() + "/locks/" + name + "?ttl=1s";
  }
  void restart() override { server_.restart(); }

 private:
  test::Etcd server_;
};

class KubeBackend final : public Backend {
 public:
  explicit KubeBackend(const TempDir&) {}
  std::string uri(const std::string& name) override {
    return "k8s:ns/" + name + "?duration=1s&api=" + server_.url();
  }

 private:
  test::KubeApi server_;
};

struct Kind {
  std::string name;
  std::unique_ptr<Backend> (*make)(const TempDir&);
  /// Each generation is the successor of the previous one.
  bool counts = true;
  /// The status shows waiters.
  bool shows_waiters = true;
  /// A holder's death is visible as soon as another process could have the lock.
  bool shows_deaths = true;
};

template <typename Made>
std::unique_ptr<Backend> make(const TempDir& dir) {
  return std::make_unique<Made>(dir);
}

class LockContract : public testing::TestWithParam<Kind> {
 protected:
  [[nodiscard]] std::function<int(int)> holder(const std::string& id) const {
    return test::holder(lock_, id);
  }
  // Expects that the grant comes after all that this test has seen before.
  void expect_next(std::optional<std::uint64_t> generation) {
    ASSERT_TRUE(generation);
    if (GetParam().counts) {
      EXPECT_EQ(*generation, last_ + 1);
    } else {
      EXPECT_GT(*generation, last_);
    }
    last_ = *generation;
  }
  // Waits until the status shows this number of waiters.
  void await_waiters(std::size_t count) const {
    if (!GetParam().shows_waiters) return;
    const Deadline deadline = soon();
    while (read_lock_status(lock_).waiters.size() != count) {
      ASSERT_FALSE(deadline.expired()) << to_text(read_lock_status(lock_));
      test::pause_between_looks();
    }
  }
  // The server notices the end of a connection slightly later.
  void await_free() const {
    test::await([&] { return !find_owner(lock_); });
  }

  TempDir dir_;
  std::unique_ptr<Backend> backend_ = GetParam().make(dir_);
  std::string uri_ = backend_->uri("lock");
  LockUri lock_ = parse_lock_uri(uri_);
  std::uint64_t last_ = 0;
};

/// The kinds of locks that a process can inherit.
class InheritedLock : public LockContract {};

TEST_P(LockContract, GrantTellsWhoWhenAndHowManyth) {
  const auto before = std::chrono::system_clock::now() - std::chrono::seconds(1);
  const auto lock = open_lock(lock_, "engine-0");
  const auto result = lock->acquire(soon());
  ASSERT_EQ(result.outcome, LockWait::kLocked);
  EXPECT_EQ(result.grant.id, "engine-0");
  expect_next(result.grant.generation);
  EXPECT_GT(result.grant.granted_at, before);
  EXPECT_GE(result.grant.waited.count(), 0);
  EXPECT_FALSE(lock->check());
  EXPECT_TRUE(lock->is_confirmed());
  EXPECT_EQ(lock->fds().empty(), !is_local(lock_));
}

TEST_P(LockContract, OneAtATime) {
  constexpr int kContenders = 12;
  const std::string inside = dir_.path("inside");
  std::vector<std::unique_ptr<Forked>> contenders;
  for (int i = 0; i < kContenders; ++i) {
    contenders.push_back(std::make_unique<Forked>([&, i](int ready) {
      const auto lock = open_lock(lock_, "c" + std::to_string(i));
      const auto result = lock->acquire(soon());
      if (result.outcome != LockWait::kLocked) return 1;
      const int fd = ::open(inside.c_str(), O_CREAT | O_EXCL, 0600);
      if (fd < 0) return 2;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      say(ready, result.grant.generation);
      ::unlink(inside.c_str());
      return 0;
    }));
  }
  std::set<std::uint64_t> generations;
  for (const auto& contender : contenders) {
    generations.insert(contender->read().value_or(0));
    EXPECT_EQ(contender->wait(), 0);
  }
  EXPECT_EQ(generations.size(), static_cast<std::size_t>(kContenders));
  EXPECT_GT(*generations.begin(), 0U);
  if (GetParam().counts) {
    EXPECT_EQ(*generations.rbegin(), static_cast<std::uint64_t>(kContenders));
  }
}

TEST_P(LockContract, CrashOfTheHolderReleases) {
  auto first = std::make_unique<Forked>(holder("engine-0"));
  expect_next(first->read());
  Forked second(holder("engine-1"));
  await_waiters(1);
  EXPECT_EQ(find_owner(lock_), "engine-0");
  first->kill();
  expect_next(second.read());
  EXPECT_EQ(find_owner(lock_), "engine-1");
}

TEST_P(LockContract, GivingItUpReleases) {
  const std::string enough = dir_.path("enough");
  Forked first([&](int ready) {
    auto lock = open_lock(lock_, "engine-0");
    say(ready, lock->acquire(soon()).grant.generation);
    while (!std::filesystem::exists(enough)) test::pause_between_looks();
    lock.reset();
    return test::pause_for_ever();
  });
  expect_next(first.read());
  Forked second(holder("engine-1"));
  await_waiters(1);
  spill(enough, "");
  expect_next(second.read());
}

TEST_P(InheritedLock, ProcessThatInheritedItKeepsIt) {
  Forked first([&](int ready) {
    const auto lock = open_lock(lock_, "engine-0");
    lock->acquire(soon());
    const os::Child child = os::spawn({"sleep", "1000"}, {.keep_fds = {lock->fds().at(0)}});
    say(ready, static_cast<std::uint64_t>(child.pid()));
    return test::pause_for_ever();
  });
  const auto child = static_cast<pid_t>(first.read().value_or(0));
  ASSERT_GT(child, 0);
  first.kill();
  const auto contender = open_lock(lock_, "engine-1");
  EXPECT_EQ(contender->acquire(Deadline::after(std::chrono::milliseconds(200))).outcome,
            LockWait::kDeadline);
  EXPECT_EQ(find_owner(lock_), "engine-0");
  ::kill(child, SIGKILL);
  EXPECT_EQ(contender->acquire(soon()).grant.generation, 2U);
}

TEST_P(InheritedLock, ReleaseFreesItThoughAnotherProcessHasTheDescriptor) {
  const auto lock = open_lock(lock_, "engine-0");
  Forked engine([](int ready) {
    say(ready, 1);
    return test::pause_for_ever();
  });
  ASSERT_TRUE(engine.read());
  ASSERT_EQ(lock->acquire(soon()).outcome, LockWait::kLocked);
  lock->release();
  const auto other = open_lock(lock_, "engine-1");
  const auto result = other->acquire(soon());
  ASSERT_EQ(result.outcome, LockWait::kLocked);
  EXPECT_EQ(result.grant.generation, 2U);
  EXPECT_EQ(lock->acquire(Deadline::after(std::chrono::milliseconds(100))).outcome,
            LockWait::kDeadline);
  other->release();
  const auto again = lock->acquire(soon());
  ASSERT_EQ(again.outcome, LockWait::kLocked);
  EXPECT_EQ(again.grant.generation, 3U);
  EXPECT_FALSE(lock->check());
  EXPECT_EQ(find_owner(lock_), "engine-0");
}

TEST_P(LockContract, ReleaseLetsTheNextOneHaveIt) {
  const auto lock = open_lock(lock_, "engine-0");
  const auto other = open_lock(lock_, "engine-1");
  for (const auto* each : {&lock, &other, &lock, &lock}) {
    const auto result = (*each)->acquire(soon());
    ASSERT_EQ(result.outcome, LockWait::kLocked);
    expect_next(result.grant.generation);
    EXPECT_FALSE((*each)->check());
    EXPECT_EQ(find_owner(lock_), (*each)->id());
    (*each)->release();
  }
  await_free();
}

TEST_P(LockContract, DeadlinePassesWithoutAGrant) {
  Forked first(holder("engine-0"));
  expect_next(first.read());
  const auto lock = open_lock(lock_, "engine-1");
  for (const int ms : {0, 1, 50}) {
    EXPECT_EQ(lock->acquire(Deadline::after(std::chrono::milliseconds(ms))).outcome,
              LockWait::kDeadline);
  }
  first.kill();
  // A waiter that has timed out must not get the lock.
  if (GetParam().shows_deaths) await_free();
  expect_next(lock->acquire(soon()).grant.generation);
}

TEST_P(LockContract, ShortDeadlineIsEnoughForAFreeLock) {
  for (int i = 0; i < 20; ++i) {
    const auto lock = open_lock(lock_, "engine-0");
    const auto result = lock->acquire(Deadline::after(std::chrono::seconds(5)));
    EXPECT_EQ(result.outcome, LockWait::kLocked);
    expect_next(result.grant.generation);
  }
}

TEST_P(LockContract, InterruptionEndsTheWait) {
  Forked first(holder("engine-0"));
  ASSERT_TRUE(first.read());
  const base::UniqueFd interrupt(::eventfd(1, EFD_CLOEXEC));
  const auto lock = open_lock(lock_, "engine-1");
  EXPECT_EQ(lock->acquire(Deadline::never(), interrupt.get()).outcome, LockWait::kInterrupted);
}

TEST_P(LockContract, ReminderIsCalledWhileItWaits) {
  Forked first(holder("engine-0"));
  ASSERT_TRUE(first.read());
  const base::UniqueFd interrupt(::eventfd(0, EFD_CLOEXEC));
  int calls = 0;
  const os::Reminder reminder{std::chrono::milliseconds(1), [&] {
                                if (++calls == 3) ::eventfd_write(interrupt.get(), 1);
                              }};
  const auto lock = open_lock(lock_, "engine-1");
  EXPECT_EQ(lock->acquire(Deadline::never(), interrupt.get(), reminder).outcome,
            LockWait::kInterrupted);
  EXPECT_GE(calls, 3);
}

TEST_P(LockContract, GenerationsRiseAlsoOverARestart) {
  for (int round = 0; round < 3; ++round) {
    for (const char* id : {"engine-0", "engine-1", "engine-0"}) {
      const auto lock = open_lock(lock_, id);
      const auto result = lock->acquire(soon());
      ASSERT_EQ(result.outcome, LockWait::kLocked);
      expect_next(result.grant.generation);
    }
    await_free();
    backend_->restart();
  }
}

TEST_P(LockContract, OwnerIsTheHolderOrNobody) {
  EXPECT_FALSE(find_owner(lock_));
  {
    const auto lock = open_lock(lock_, "Motor Nº 1 \"links\"");
    lock->acquire(soon());
    EXPECT_EQ(find_owner(lock_), "Motor Nº 1 \"links\"");
  }
  await_free();
}

TEST_P(LockContract, StatusShowsHolderAndWaiters) {
  EXPECT_FALSE(read_lock_status(lock_).held);
  auto first = std::make_unique<Forked>(holder("engine-0"));
  expect_next(first->read());
  Forked second(holder("engine-1"));
  await_waiters(1);
  LockStatus status = read_lock_status(lock_);
  EXPECT_EQ(status.path, lock_.path);
  EXPECT_TRUE(status.held);
  EXPECT_EQ(status.holder, "engine-0");
  ASSERT_TRUE(status.record);
  EXPECT_EQ(status.record->generation, last_);
  EXPECT_EQ(status.last_generation, last_);
  const auto object = nlohmann::json::parse(to_json(status));
  EXPECT_EQ(object["holder"], "engine-0");
  EXPECT_NE(
      describe_holders(status).find("held by 'engine-0', generation " + std::to_string(last_)),
      std::string::npos)
      << describe_holders(status);
  if (GetParam().shows_waiters) {
    EXPECT_EQ(object["waiters"].size(), 1U);
  }
  first->kill();
  expect_next(second.read());
  second.kill();
  if (!GetParam().shows_deaths) return;
  await_free();
  status = read_lock_status(lock_);
  EXPECT_FALSE(status.record);
  if (GetParam().counts) {
    EXPECT_EQ(status.last_generation, last_);
  }
}

TEST_P(InheritedLock, StatusShowsProcesses) {
  auto first = std::make_unique<Forked>(holder("engine-0"));
  ASSERT_EQ(first->read(), 1U);
  Forked second(holder("engine-1"));
  await_waiters(1);
  LockStatus status = read_lock_status(lock_);
  ASSERT_TRUE(status.record);
  EXPECT_EQ(status.record->pid, first->pid());
  EXPECT_EQ(status.holder_state, HolderState::kRunning);
  EXPECT_EQ(status.waiters[0].pid, second.pid());
  std::vector<pid_t> keepers;
  for (const OpenBy& by : status.open_by) {
    if (by.holds) keepers.push_back(by.pid);
  }
  EXPECT_EQ(keepers, std::vector<pid_t>{first->pid()});
  const auto object = nlohmann::json::parse(to_json(status));
  EXPECT_EQ(object["pid"], first->pid());
  EXPECT_EQ(object["pid_visible"], true);
  EXPECT_EQ(object["waiters"][0]["pid"], second.pid());
  EXPECT_NE(describe_holders(status).find("held by 'engine-0', generation 1, process " +
                                          std::to_string(first->pid()) + "; held open by "),
            std::string::npos)
      << describe_holders(status);
  first->kill();
  ASSERT_EQ(second.read(), 2U);
  second.kill();
  await_free();
  EXPECT_EQ(read_lock_status(lock_).last_generation, 2U);
}

TEST_P(LockContract, TwoLocksNest) {
  const LockUri inner_lock = parse_lock_uri(backend_->uri("inner"));
  const auto outer = open_lock(lock_, "engine-0");
  ASSERT_EQ(outer->acquire(soon()).outcome, LockWait::kLocked);
  auto inner = open_lock(inner_lock, "inner");
  ASSERT_EQ(inner->acquire(soon()).outcome, LockWait::kLocked);
  EXPECT_EQ(find_owner(inner_lock), "inner");
  inner.reset();
  EXPECT_FALSE(outer->check());
  EXPECT_EQ(find_owner(lock_), "engine-0");
  EXPECT_EQ(open_lock(inner_lock, "other")->acquire(soon()).outcome, LockWait::kLocked);
}

TEST_P(LockContract, BadIdIsRefused) {
  for (const char* id : {"", "a\nb", "\xff"}) {
    EXPECT_EQ(test::status_of([&] { open_lock(lock_, id); }), base::ExitStatus::kConfig);
  }
}

// --- The same through `acquire`, with a command.

class SupervisedLock : public LockContract {
 protected:
  AcquireOptions options(const std::string& script) {
    AcquireOptions options;
    options.locks = {lock_};
    options.id = "engine-0";
    options.command = {"sh", "-c", script};
    options.grace = std::chrono::milliseconds(50);
    return options;
  }
  // Runs in its own process, because it blocks signals and reaps every child.
  std::unique_ptr<Forked> start(const AcquireOptions& options) {
    return std::make_unique<Forked>([options](int) {
      const AcquireEnd end = acquire(options, [](const Grant&) {});
      return end.signal != 0 ? 128 + end.signal : end.status;
    });
  }
  [[nodiscard]] std::string await_line(const std::string& file) const {
    const Deadline deadline = soon();
    std::string text;
    while (text.find('\n') == std::string::npos && !deadline.expired()) {
      text = slurp(dir_.path(file));
      test::pause_between_looks();
    }
    return text.substr(0, text.find('\n'));
  }
};

TEST_P(SupervisedLock, CommandKnowsItsGrantAndItsStatusIsOurs) {
  const std::string out = dir_.path("out");
  const auto process =
      start(options("fd=${FAILOVER_LOCK_FD-none}; if [ -e /proc/self/fd/$fd ]; then fd=open; fi;"
                    " echo $FAILOVER_GENERATION $FAILOVER_LOCK_ID $fd >" +
                    out + "; exit 7"));
  EXPECT_EQ(process->wait(), 7);
  expect_next(std::stoull(slurp(out)));
  EXPECT_EQ(slurp(out),
            std::to_string(last_) + " engine-0 " + (is_local(lock_) ? "open\n" : "none\n"));
  await_free();
}

TEST_P(SupervisedLock, NestedCommandsSeeTheInnermost) {
  const std::string inner = backend_->uri("inner");
  const std::string out = dir_.path("out");
  AcquireOptions outer = options("");
  outer.command = {FO_BUILD_DIR "/bin/gms-lock",
                   "acquire",
                   "--lock",
                   inner,
                   "--id",
                   "inner",
                   "--",
                   "sh",
                   "-c",
                   "echo $FAILOVER_GENERATION $FAILOVER_LOCK_ID >" + out};
  EXPECT_EQ(start(outer)->wait(), 0);
  expect_next(std::stoull(slurp(out)));
  EXPECT_EQ(slurp(out), std::to_string(last_) + " inner\n");
}

TEST_P(SupervisedLock, KilledSupervisorTakesTheCommandWithIt) {
  const auto process = start(options("echo $$ >" + dir_.path("pid") + "; exec sleep 1000"));
  const pid_t command = std::stoi(await_line("pid"));
  process->kill();
  const auto next = open_lock(lock_, "engine-1");
  ASSERT_EQ(next->acquire(soon()).outcome, LockWait::kLocked);
  // The lock was granted after the last process that inherited it had ended, or after the lease.
  EXPECT_FALSE(os::process_start_time(command) &&
               std::filesystem::exists("/proc/" + std::to_string(command) + "/exe"));
}

TEST_P(SupervisedLock, TimeoutIsTheBusyStatus) {
  Forked first(holder("engine-9"));
  ASSERT_TRUE(first.read());
  AcquireOptions wanted = options("exit 0");
  wanted.timeout = std::chrono::milliseconds(20);
  wanted.busy_status = 9;
  EXPECT_EQ(start(wanted)->wait(), 9);
}

const Kind kFlockKind{"Flock", make<FlockBackend>};
const Kind kLockdKind{"Lockd", make<LockdBackend<false>>};
const Kind kTcpKind{"Tcp", make<LockdBackend<true>>};
const Kind kEtcdKind{.name = "Etcd", .make = make<EtcdBackend>, .counts = false};
const Kind kLeaseKind{
    .name = "Lease", .make = make<KubeBackend>, .shows_waiters = false, .shows_deaths = false};

std::string name_of(const testing::TestParamInfo<Kind>& info) { return info.param.name; }

const auto kAll = testing::Values(kFlockKind, kLockdKind, kTcpKind, kEtcdKind, kLeaseKind);
INSTANTIATE_TEST_SUITE_P(Backends, LockContract, kAll, name_of);
INSTANTIATE_TEST_SUITE_P(Backends, SupervisedLock, kAll, name_of);
INSTANTIATE_TEST_SUITE_P(Backends, InheritedLock, testing::Values(kFlockKind, kLockdKind), name_of);

// --- Kinds that grant in the order of the requests.

using FifoLock = LockContract;

TEST_P(FifoLock, GrantsComeInTheOrderOfAsking) {
  auto first = std::make_unique<Forked>(holder("first"));
  expect_next(first->read());
  std::vector<std::unique_ptr<Forked>> queue;
  const std::size_t waiters = is_local(lock_) ? 8 : 3;
  for (std::size_t i = 0; i < waiters; ++i) {
    queue.push_back(std::make_unique<Forked>(holder("q" + std::to_string(i))));
    await_waiters(i + 1);
  }
  const LockStatus status = read_lock_status(lock_);
  for (std::size_t i = 0; i < queue.size(); ++i) {
    EXPECT_EQ(status.waiters[i].id, "q" + std::to_string(i));
    if (is_local(lock_)) {
      EXPECT_EQ(status.waiters[i].pid, queue[i]->pid());
    }
  }
  first->kill();
  for (const auto& next : queue) {
    expect_next(next->read());
    next->kill();
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FifoLock, testing::Values(kLockdKind, kTcpKind, kEtcdKind),
                         name_of);

}  // namespace
}  // namespace fo::lock
