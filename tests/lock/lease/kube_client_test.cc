#include "lock/lease/kube_client.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kube/lease.h"
#include "lock/failover_lock.h"
#include "lock/kube.h"
#include "lock/support.h"
#include "loop/run.h"
#include "support/authority.h"
#include "support/await.h"
#include "support/soon.h"

namespace fo::lock {
namespace {

using base::BootClock;
using base::Deadline;
using base::ExitStatus;
using nlohmann::json;
using os::LockWait;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Authority;
using test::await;
using test::foreign_lease;
using test::Forked;
using test::holder;
using test::kLong;
using test::KubeApi;
using test::lock_in;
using test::say;
using test::spill;
using test::status_of;
using test::TempDir;

using fo::test::soon;

// Waits until the lock is lost.
Loss await_loss(FailoverLock& lock) {
  std::optional<Loss> loss;
  await([&] { return (loss = lock.check()).has_value(); });
  return loss.value_or(Loss{});
}

// Waits for this number of renewals.
void await_renewals(const KubeApi& api, int count) {
  const int before = api.count("update");
  await([&] { return api.count("update") >= before + count; });
}

std::string holder_of(const KubeApi& api) { return api.lease()["spec"]["holderIdentity"]; }

std::uint64_t acquire(FailoverLock& lock) {
  const auto result = lock.acquire(soon());
  EXPECT_EQ(result.outcome, LockWait::kLocked);
  return result.grant.generation;
}

TEST(KubeClient, CreatesTheLease) {
  const KubeApi api;
  const auto lock = open_lock(lock_in(api, "15s"), "engine-0");
  EXPECT_EQ(acquire(*lock), 1U);
  const json spec = api.lease()["spec"];
  EXPECT_THAT(spec["holderIdentity"], testing::MatchesRegex("engine-0_[0-9a-f]{16}"));
  EXPECT_EQ(spec["leaseDurationSeconds"], 15);
  EXPECT_EQ(spec["leaseTransitions"], 1);
  EXPECT_EQ(spec["acquireTime"], spec["renewTime"]);
  EXPECT_FALSE(lock->check());
  EXPECT_TRUE(lock->is_confirmed());
}

TEST(KubeClient, ServerMayHaveAName) {
  const KubeApi api;
  const LockUri uri = parse_lock_uri("k8s:ns/pair?api=" + api.url("localhost"));
  EXPECT_EQ(acquire(*open_lock(uri, "engine-0")), 1U);
  EXPECT_EQ(api.lease()["spec"]["leaseTransitions"], 1);
  EXPECT_EQ(find_owner(uri), std::nullopt);
}

TEST(KubeClient, EveryGrantHasItsGenerationAlsoForOneId) {
  const KubeApi api;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    const auto lock = open_lock(lock_in(api), "engine-0");
    EXPECT_EQ(acquire(*lock), i);
    lock->release();
    EXPECT_EQ(holder_of(api), "");
    EXPECT_EQ(api.lease()["spec"]["leaseDurationSeconds"], 1);
    EXPECT_EQ(api.lease()["spec"]["leaseTransitions"], i);
  }
  const auto lock = open_lock(lock_in(api), "engine-0");
  EXPECT_EQ(acquire(*lock), 6U);
  lock->release();
  EXPECT_EQ(acquire(*lock), 7U);
}

TEST(KubeClient, KeepsWhatOthersWrote) {
  const KubeApi api;
  json lease = foreign_lease("", 15);
  lease["metadata"]["annotations"] = {{"note", "\u00e4 \"quoted\""}};
  lease["spec"]["strategy"] = "OldestEmulationVersion";
  lease["spec"]["preferredHolder"] = "somebody";
  api.create(lease);
  const auto lock = open_lock(lock_in(api), "engine-0");
  EXPECT_EQ(acquire(*lock), 7U);
  await_renewals(api, 1);
  lock->release();
  const json now = api.lease();
  EXPECT_EQ(now["metadata"]["labels"], lease["metadata"]["labels"]);
  EXPECT_EQ(now["metadata"]["annotations"], lease["metadata"]["annotations"]);
  EXPECT_EQ(now["spec"]["strategy"], "OldestEmulationVersion");
  EXPECT_EQ(now["spec"]["preferredHolder"], "somebody");
}

TEST(KubeClient, HolderHasItsTimeWhateverTheClocksSay) {
  for (const char* renewed : {"2001-01-01T00:00:00.000000Z", "2199-01-01T00:00:00.000000Z"}) {
    const KubeApi api;
    api.create(foreign_lease("another_8d3c1f0a", 1, renewed));
    const auto begin = BootClock::now();
    const auto lock = open_lock(lock_in(api), "engine-0");
    EXPECT_EQ(acquire(*lock), 7U);
    EXPECT_GE(BootClock::now() - begin, seconds(1)) << renewed;
  }
}

TEST(KubeClient, HolderThatRenewsKeepsIt) {
  const KubeApi api;
  Forked first(holder(lock_in(api, "1s"), "engine-0"));
  ASSERT_EQ(first.read(), 1U);
  const auto lock = open_lock(lock_in(api, "1s"), "engine-1");
  EXPECT_EQ(lock->acquire(Deadline::after(milliseconds(2500))).outcome, LockWait::kDeadline);
  EXPECT_EQ(find_owner(lock_in(api)), "engine-0");
  // One watch reports many renewals, here seven.
  EXPECT_LE(api.count("watch"), 3);
}

TEST(KubeClient, EditsOfTheLeaseDoNotRenewIt) {
  const KubeApi api;
  api.create(foreign_lease("dead", 1));
  std::promise<void> is_over;
  std::thread controller([&, over = is_over.get_future()] {
    int count = 0;
    // The pause allows an update between two edits.
    do {
      api.edit(
          [&](json& lease) { lease["metadata"]["labels"]["count"] = std::to_string(++count); });
    } while (over.wait_for(milliseconds(100)) != std::future_status::ready);
  });
  const auto lock = open_lock(lock_in(api), "engine-0");
  const auto result = lock->acquire(soon());
  is_over.set_value();
  controller.join();
  EXPECT_EQ(result.outcome, LockWait::kLocked);
  EXPECT_EQ(result.grant.generation, 7U);
  EXPECT_LE(api.count("watch"), 3);
}

TEST(KubeClient, DeletedLeaseIsNotFreeBeforeItsHoldersTimeIsOver) {
  for (const char* watch : {"nothing", "end"}) {
    const KubeApi api;
    api.create(foreign_lease("another", 2));
    api.fault({{"verb", "watch"}, {"do", watch}});
    BootClock::time_point deleted;
    std::thread other([&] {
      await([&] { return api.count("watch") >= 1; });
      deleted = BootClock::now();
      api.remove();
    });
    const auto lock = open_lock(lock_in(api), "engine-0");
    EXPECT_EQ(acquire(*lock), 7U);
    const BootClock::time_point granted = BootClock::now();
    other.join();
    EXPECT_GE(granted - deleted, seconds(2)) << watch;
  }
}

TEST(KubeClient, ShortenedLeaseIsNotFreeBeforeItsHoldersTimeIsOver) {
  const KubeApi api;
  api.create(foreign_lease("another", 3));
  BootClock::time_point shortened;
  std::thread other([&] {
    await([&] { return api.count("watch") >= 1; });
    shortened = BootClock::now();
    api.edit([](json& lease) { lease["spec"]["leaseDurationSeconds"] = 1; });
  });
  const auto lock = open_lock(lock_in(api), "engine-0");
  EXPECT_EQ(acquire(*lock), 7U);
  const BootClock::time_point granted = BootClock::now();
  other.join();
  EXPECT_GE(granted - shortened, seconds(3));
}

TEST(KubeClient, DeletedLeaseThatIsCreatedAgainIsLookedAtAnew) {
  const KubeApi api;
  api.create(foreign_lease("another", 3600));
  std::thread other([&] {
    await([&] { return api.count("watch") >= 1; });
    api.remove();
    const int before = api.count("get");
    await([&] { return api.count("get") > before; });
    api.create(foreign_lease("", 1));
  });
  const auto lock = open_lock(lock_in(api), "engine-0");
  EXPECT_EQ(acquire(*lock), 7U);
  other.join();
  EXPECT_EQ(api.count("create"), 0);
}

TEST(KubeClient, DurationThatIsStoredIsTheOneThatCounts) {
  const KubeApi api;
  const auto client = make_kube_client(lock_in(api, "3600s"), "engine-0");
  const auto renewed = [&] {
    return std::get<Renewal>(loop::run_to_end(client->renew(Deadline::after(kLong)))).ttl;
  };
  api.fault({{"verb", "create"}, {"do", "clamp"}, {"seconds", 60}});
  EXPECT_EQ(loop::run_to_end(client->acquire()).renewed.ttl, seconds(60));
  EXPECT_EQ(renewed(), seconds(3600));
  api.fault({{"verb", "update"}, {"do", "clamp"}, {"seconds", 50}});
  EXPECT_EQ(renewed(), seconds(50));
  loop::run_to_end(client->release(Deadline::after(kLong)));
  EXPECT_EQ(loop::run_to_end(client->acquire()).renewed.ttl, seconds(50));
  api.mend();
  // A longer stored duration does not change the lease.
  api.fault({{"verb", "update"}, {"count", 1}, {"do", "clamp"}, {"seconds", 7200}});
  EXPECT_EQ(renewed(), seconds(3600));
  api.fault({{"verb", "update"}, {"count", 1}, {"do", "clamp"}, {"seconds", 0}});
  const auto answer = loop::run_to_end(client->renew(Deadline::after(kLong)));
  EXPECT_EQ(std::get<LeaseEnded>(answer).status, ExitStatus::kProtocol);
}

TEST(KubeClient, ReleaseHandsOverAtOnce) {
  const KubeApi api;
  Forked second([&](int ready) {
    say(ready, 0);
    await([&] { return !api.lease().is_null(); });
    const auto lock = open_lock(lock_in(api, "3600s"), "engine-1");
    say(ready, acquire(*lock));
    ::pause();
    return 0;
  });
  const auto lock = open_lock(lock_in(api, "3600s"), "engine-0");
  ASSERT_EQ(second.read(), 0U);
  EXPECT_EQ(acquire(*lock), 1U);
  await([&] { return api.count("watch") > 0; });
  lock->release();
  EXPECT_EQ(second.read(), 2U);
  // The watch reported the release, without further queries.
  EXPECT_LE(api.count("get"), 4);
  EXPECT_EQ(find_owner(lock_in(api)), "engine-1");
}

TEST(KubeClient, CrashOfTheHolderIsFoundOut) {
  const KubeApi api;
  Forked first(holder(lock_in(api, "1s"), "engine-0"));
  ASSERT_EQ(first.read(), 1U);
  first.kill();
  const auto lock = open_lock(lock_in(api, "1s"), "engine-0");
  EXPECT_EQ(acquire(*lock), 2U);
}

TEST(KubeClient, WaitingLeavesTheLeaseAlone) {
  const KubeApi api;
  api.create(foreign_lease("another", 3600));
  const json before = api.lease();
  const auto lock = open_lock(lock_in(api), "engine-0");
  for (const int ms : {0, 1, 300}) {
    EXPECT_EQ(lock->acquire(Deadline::after(milliseconds(ms))).outcome, LockWait::kDeadline);
  }
  const base::UniqueFd interruption(::eventfd(1, EFD_CLOEXEC));
  EXPECT_EQ(lock->acquire(soon(), interruption.get()).outcome, LockWait::kInterrupted);
  EXPECT_EQ(api.lease(), before);
}

TEST(KubeClient, WaitThatIsBrokenOffGivesBackWhatCameMeanwhile) {
  for (const char* verb : {"create", "update"}) {
    const KubeApi api;
    if (std::string(verb) == "update") api.create(foreign_lease("", 1));
    api.fault({{"verb", verb}, {"count", 1}, {"do", "hang-after"}});
    const base::UniqueFd interruption(::eventfd(0, EFD_CLOEXEC));
    std::thread interrupter([&] {
      await([&] { return !api.lease().is_null() && !holder_of(api).empty(); });
      ::eventfd_write(interruption.get(), 1);
    });
    const auto lock = open_lock(lock_in(api, "3600s"), "engine-0");
    EXPECT_EQ(lock->acquire(soon(), interruption.get()).outcome, LockWait::kInterrupted);
    interrupter.join();
    EXPECT_EQ(holder_of(api), "") << verb;
  }
}

// --- The server's answers to the holder.

TEST(KubeClient, LostAnswersAndConflictsAreNoLoss) {
  const KubeApi api;
  const auto lock = open_lock(lock_in(api, "3s"), "engine-0");
  acquire(*lock);
  for (const json& fault :
       {json{{"verb", "update"}, {"count", 2}, {"do", "lost"}},
        json{{"verb", "update"}, {"count", 2}, {"do", "cut"}},
        json{{"verb", "update"}, {"count", 2}, {"do", "answer"}, {"status", 409}},
        json{{"verb", "*"}, {"count", 2}, {"do", "answer"}, {"status", 503}},
        json{{"verb", "*"}, {"count", 1}, {"do", "answer"}, {"status", 401}},
        json{{"verb", "*"}, {"count", 1}, {"do", "answer"}, {"status", 403}},
        // Only the load balancer answers this.
        json{{"verb", "update"}, {"count", 1}, {"do", "page"}, {"status", 404}},
        json{{"verb", "*"}, {"count", 2}, {"do", "answer"}, {"status", 404}},
        json{{"verb", "*"}, {"count", 1}, {"do", "page"}, {"status", 200}},
        json{{"verb", "update"},
             {"count", 1},
             {"do", "answer"},
             {"status", 429},
             {"headers", {{"Retry-After", "1"}}}},
        json{{"verb", "update"}, {"count", 2}, {"do", "slow"}, {"seconds", 0.2}},
        // The server executes it after the client's timeout.
        json{{"verb", "update"}, {"count", 1}, {"do", "slow"}, {"seconds", 0.8}},
        json{{"verb", "update"}, {"count", 1}, {"do", "hang-after"}}}) {
    api.fault(fault);
    const std::string version = api.lease()["metadata"]["resourceVersion"];
    await_renewals(api, 3);
    api.mend();
    await([&] { return lock->is_confirmed(); });
    EXPECT_NE(api.lease()["metadata"]["resourceVersion"], version) << fault;
    EXPECT_FALSE(lock->check()) << fault;
  }
  EXPECT_EQ(api.lease()["spec"]["leaseTransitions"], 1);
}

TEST(KubeClient, EditedLeaseIsKeptAsItIsEdited) {
  const KubeApi api;
  const auto lock = open_lock(lock_in(api, "3s"), "engine-0");
  acquire(*lock);
  api.edit([](json& lease) { lease["metadata"]["labels"] = {{"team", "red"}}; });
  await_renewals(api, 3);
  EXPECT_FALSE(lock->check());
  EXPECT_EQ(api.lease()["metadata"]["labels"]["team"], "red");
}

TEST(KubeClient, LossIsToldWithItsReason) {
  const KubeApi api;
  const auto lock = open_lock(lock_in(api, "3s"), "engine-0");
  acquire(*lock);
  api.set_holder("thief_0123456789abcdef");
  Loss loss = await_loss(*lock);
  EXPECT_EQ(loss.status, ExitStatus::kTryAgain);
  EXPECT_THAT(loss.reason, testing::StartsWith("'thief' has acquired it; another may have"));
  lock->release();
  EXPECT_EQ(api.lease()["spec"]["holderIdentity"], "thief_0123456789abcdef");

  api.set_holder("");
  acquire(*lock);
  api.set_holder("");
  loss = await_loss(*lock);
  EXPECT_THAT(loss.reason, testing::StartsWith("it was released by another process; another may"));
  lock->release();
}

TEST(KubeClient, DeletedLeaseIsLostAndCountsOn) {
  const KubeApi api;
  api.create(foreign_lease("", 1));
  const auto lock = open_lock(lock_in(api, "3s"), "engine-0");
  EXPECT_EQ(acquire(*lock), 7U);
  api.remove();
  const Loss loss = await_loss(*lock);
  EXPECT_EQ(loss.status, ExitStatus::kTryAgain);
  EXPECT_THAT(loss.reason, testing::StartsWith("the Lease was deleted; another may have"));
  lock->release();
  EXPECT_TRUE(api.lease().is_null());
  EXPECT_EQ(acquire(*lock), 8U);
}

TEST(KubeClient, ServerThatHangsForGoodIsALossInTime) {
  const KubeApi api;
  const auto lock = open_lock(lock_in(api, "2s"), "engine-0");
  acquire(*lock);
  await_renewals(api, 1);
  api.fault({{"verb", "*"}, {"do", "hang"}});
  const Loss loss = await_loss(*lock);
  EXPECT_EQ(loss.status, ExitStatus::kTryAgain);
  EXPECT_THAT(loss.reason, testing::HasSubstr("the lease could not be renewed: "));
  EXPECT_EQ(loss.overlap, base::Duration::zero());
  // The lock may have been freed by hand meanwhile.
  EXPECT_FALSE(loss.is_overlap_known);
  EXPECT_NO_THROW(lock->release());
}

TEST(KubeClient, ProcessThatWasStoppedFindsOut) {
  const KubeApi api;
  Forked first([&](int ready) {
    const auto lock = open_lock(lock_in(api, "1s"), "engine-0");
    say(ready, acquire(*lock));
    const Loss loss = await_loss(*lock);
    say(ready, loss.overlap > base::Duration::zero() ? 1 : 0);
    return base::to_int(loss.status);
  });
  ASSERT_EQ(first.read(), 1U);
  ASSERT_EQ(::kill(first.pid(), SIGSTOP), 0);
  const auto lock = open_lock(lock_in(api, "1s"), "engine-1");
  EXPECT_EQ(acquire(*lock), 2U);
  ASSERT_EQ(::kill(first.pid(), SIGCONT), 0);
  EXPECT_EQ(first.read(), 1U);
  EXPECT_EQ(first.wait(), base::to_int(ExitStatus::kTryAgain));
  EXPECT_FALSE(lock->check());
  EXPECT_EQ(find_owner(lock_in(api)), "engine-1");
}

// --- The server's answers to a waiter.

TEST(KubeClient, BrokenWatchesAreReasonsToLook) {
  for (const json& fault :
       {json{{"do", "expire"}}, json{{"do", "end"}}, json{{"do", "cut"}},
        json{{"do", "answer"}, {"status", 410}}, json{{"do", "answer"}, {"status", 500}},
        json{{"do", "answer"}, {"status", 404}}, json{{"do", "lost"}}}) {
    const KubeApi api;
    api.create(foreign_lease("another", 3600));
    json all = fault;
    all["verb"] = "watch";
    api.fault(all);
    std::thread releaser([&] {
      await([&] { return api.count("watch") >= 3; });
      api.set_holder("");
    });
    const auto lock = open_lock(lock_in(api), "engine-0");
    EXPECT_EQ(acquire(*lock), 7U) << fault;
    releaser.join();
  }
}

TEST(KubeClient, WatchThatIsTooOldBeginsAnew) {
  const KubeApi api({"--bookmark-every", "0.05"});
  api.create(foreign_lease("another", 3600));
  api.fault({{"verb", "watch"}, {"count", 1}, {"do", "slow"}, {"seconds", 0.3}});
  std::thread other([&] {
    await([&] { return api.count("watch") >= 1; });
    api.set_holder("");
    api.compact();
  });
  const auto lock = open_lock(lock_in(api), "engine-0");
  EXPECT_EQ(acquire(*lock), 7U);
  other.join();
}

TEST(KubeClient, SilentWatchEndsWithTheHoldersTime) {
  const KubeApi api;
  api.create(foreign_lease("another", 1));
  api.fault({{"verb", "watch"}, {"do", "hang"}});
  const auto lock = open_lock(lock_in(api), "engine-0");
  EXPECT_EQ(acquire(*lock), 7U);
}

TEST(KubeClient, WaitGoesOnWhenTheServerIsIll) {
  for (const json& fault :
       {json{{"status", 500}}, json{{"status", 401}}, json{{"status", 403}},
        json{{"status", 429}, {"headers", {{"Retry-After", "1"}}}}, json{{"do", "cut"}},
        json{{"status", 404}}, json{{"status", 302}}, json{{"do", "page"}, {"status", 404}},
        json{{"do", "page"}, {"status", 200}}}) {
    const KubeApi api;
    api.create(foreign_lease("another", 3600));
    std::thread other([&] {
      await([&] { return api.count("watch") >= 1; });
      json all = fault;
      all["verb"] = "*";
      all["count"] = 3;
      api.fault(all);
      const int before = api.count("get") + api.count("watch");
      api.fault({{"verb", "watch"}, {"do", "hang-up"}});
      await([&] { return api.count("get") + api.count("watch") >= before + 3; });
      api.set_holder("");
    });
    const auto lock = open_lock(lock_in(api), "engine-0");
    EXPECT_EQ(acquire(*lock), 7U) << fault;
    other.join();
  }
}

TEST(KubeClient, PageInsteadOfAnAnswerToAnUpdateIsTriedAgain) {
  for (const int status : {200, 302, 403, 404}) {
    const KubeApi api;
    api.create(foreign_lease("", 1));
    api.fault({{"verb", "update"}, {"count", 2}, {"do", "page"}, {"status", status}});
    EXPECT_EQ(acquire(*open_lock(lock_in(api), "engine-0")), 7U) << status;
  }
}

TEST(KubeClient, WaitGoesOnWhileFilesAreReplaced) {
  const TempDir dir;
  spill(dir.path("token"), "secret");
  spill(dir.path("own"), "secret");
  const KubeApi api({"--token-file", dir.path("token")});
  api.create(foreign_lease("another", 3600));
  Forked waiter([&](int ready) {
    const base::UniqueFd log(::open(dir.path("log").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    if (!log || ::dup2(log.get(), STDERR_FILENO) < 0) return 1;
    const auto lock = open_lock(
        parse_lock_uri("k8s:ns/pair?api=" + api.url() + "&token-file=" + dir.path("own")), "a");
    say(ready, acquire(*lock));
    return 0;
  });
  const auto logged = [&](const std::string& text) {
    std::ifstream file(dir.path("log"));
    const std::string all(std::istreambuf_iterator<char>(file), {});
    return all.find(text) != std::string::npos;
  };
  await([&] { return api.count("watch") >= 1; });
  std::filesystem::remove(dir.path("own"));
  api.fault({{"verb", "watch"}, {"do", "hang-up"}});
  await([&] { return logged("No such file or directory; retrying\n"); });
  spill(dir.path("own"), "");
  await([&] { return logged("it has no token; retrying\n"); });
  spill(dir.path("own"), "secret");
  api.set_holder("");
  EXPECT_EQ(waiter.read(), 7U);
  EXPECT_EQ(waiter.wait(), 0);
}

TEST(KubeClient, FirstAnswersMayFail) {
  for (const json& fault : {json{{"status", 503}}, json{{"status", 401}}, json{{"do", "cut"}},
                            json{{"do", "page"}, {"status", 404}},
                            json{{"status", 429}, {"headers", {{"Retry-After", "1"}}}}}) {
    const KubeApi api;
    json all = fault;
    all["verb"] = "*";
    all["count"] = 3;
    api.fault(all);
    const auto lock = open_lock(lock_in(api), "engine-0");
    EXPECT_EQ(acquire(*lock), 1U) << fault;
  }
}

TEST(KubeClient, WhatIsWrongForGoodIsSaidAtOnce) {
  const KubeApi api({"--no-namespace", "ns"});
  const auto refusal = [&](const json& fault) {
    api.mend();
    if (!fault.is_null()) api.fault(fault);
    const auto lock = open_lock(lock_in(api), "engine-0");
    return status_of([&] { lock->acquire(soon()); });
  };
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 403}}), ExitStatus::kNotPermitted);
  EXPECT_EQ(refusal({{"verb", "create"}, {"status", 403}}), ExitStatus::kNotPermitted);
  EXPECT_EQ(refusal({{"verb", "create"}, {"status", 422}}), ExitStatus::kProtocol);
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 302}}), ExitStatus::kProtocol);
  EXPECT_EQ(refusal({}), ExitStatus::kNoInput);
  api.mend();
  EXPECT_EQ(test::failure_of([&] { open_lock(lock_in(api), "engine-0")->acquire(soon()); }).message,
            "create Lease 'ns/pair': the API server answers 404: namespaces \"ns\" not found");
}

TEST(KubeClient, CountThatIsAtItsEndIsNotWrapped) {
  const KubeApi api;
  json lease = foreign_lease("", 1);
  lease["spec"]["leaseTransitions"] = 0x7fffffff;
  api.create(lease);
  const auto lock = open_lock(lock_in(api), "engine-0");
  EXPECT_EQ(lock->acquire(Deadline::after(milliseconds(300))).outcome, LockWait::kDeadline);
  EXPECT_EQ(api.lease()["spec"]["leaseTransitions"], 0x7fffffff);
  // After a repair, the waiter continues without a restart.
  std::thread mender([&] {
    const int before = api.count("get");
    await([&] { return api.count("get") > before + 1; });
    api.edit([](json& one) { one["spec"]["leaseTransitions"] = 7; });
  });
  EXPECT_EQ(acquire(*lock), 8U);
  mender.join();
}

TEST(KubeClient, TokenIsReadForEachRequest) {
  const TempDir dir;
  spill(dir.path("good"), "first");
  spill(dir.path("own"), "first\n");
  const KubeApi api({"--token-file", dir.path("good")});
  const LockUri uri =
      parse_lock_uri("k8s:ns/pair?duration=3s&api=" + api.url() + "&token-file=" + dir.path("own"));
  const auto lock = open_lock(uri, "engine-0");
  acquire(*lock);
  spill(dir.path("good"), "second");
  spill(dir.path("own"), "second\n");
  await_renewals(api, 2);
  EXPECT_FALSE(lock->check());
  EXPECT_TRUE(lock->is_confirmed());
  EXPECT_EQ(find_owner(uri), "engine-0");
  spill(dir.path("own"), "wrong");
  EXPECT_EQ(status_of([&] { find_owner(uri); }), ExitStatus::kNotPermitted);
  EXPECT_EQ(await_loss(*lock).status, ExitStatus::kTryAgain);
}

TEST(KubeClient, WhereWatchingIsNotPermittedItIsAsked) {
  const TempDir dir;
  spill(dir.path("role"), json{{"metadata", {{"namespace", "ns"}}},
                               {"rules",
                                {{{"apiGroups", {"coordination.k8s.io"}},
                                  {"resources", {"leases"}},
                                  {"verbs", {"get", "create", "update"}}}}}}
                              .dump());
  const KubeApi api({"--role", dir.path("role")});
  api.create(foreign_lease("another", 3600));
  std::thread other([&] {
    await([&] { return api.count("watch") >= 1; });
    api.set_holder("");
  });
  const auto lock = open_lock(lock_in(api), "engine-0");
  EXPECT_EQ(acquire(*lock), 7U);
  other.join();
  EXPECT_EQ(api.count("watch"), 1);
}

TEST(KubeClient, SpeaksTlsWithTheServerThatItMeans) {
  Authority authority;
  const KubeApi api = KubeApi::over_tls(authority.issue("DNS:localhost,IP:127.0.0.1"));
  const auto uri = [&](const std::string& host, const std::string& ca) {
    return parse_lock_uri("k8s:ns/pair?duration=3s&api=" + api.url(host) + "&ca=" + ca);
  };
  std::uint64_t generation = 0;
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const auto lock = open_lock(uri(host, authority.ca()), "engine-0");
    EXPECT_EQ(acquire(*lock), ++generation) << host;
    await_renewals(api, 1);
    EXPECT_EQ(find_owner(uri(host, authority.ca())), "engine-0");
    lock->release();
  }
  const Authority other;
  const auto refusal = [&](const LockUri& wrong) {
    return status_of([&] { open_lock(wrong, "engine-0")->acquire(soon()); });
  };
  EXPECT_EQ(refusal(uri("localhost", other.ca())), ExitStatus::kConfig);
  EXPECT_EQ(refusal(uri("localhost", authority.path("absent"))), ExitStatus::kNoInput);
  const KubeApi misnamed = KubeApi::over_tls(authority.issue("DNS:api.example"));
  EXPECT_EQ(refusal(parse_lock_uri("k8s:ns/pair?api=" + misnamed.url() + "&ca=" + authority.ca())),
            ExitStatus::kConfig);
}

// --- Never two holders.

// Contenders hold the lock one after the other while the server injects `faults`: no two grants
// overlap, and each has its own generation.
void take_turns(const std::vector<json>& faults, int contenders, int turns) {
  const KubeApi api;
  const TempDir dir;
  const std::string inside = dir.path("inside");
  std::vector<std::unique_ptr<Forked>> processes;
  for (int i = 0; i < contenders; ++i) {
    processes.push_back(std::make_unique<Forked>([&, i](int ready) {
      for (int turn = 0; turn < turns; ++turn) {
        const auto lock = open_lock(lock_in(api, "2s"), "c" + std::to_string(i));
        const auto result = lock->acquire(Deadline::after(seconds(90)));
        if (result.outcome != LockWait::kLocked) return 1;
        const int fd = ::open(inside.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) return 2;
        ::close(fd);
        for (int look = 0; look < 20; ++look) {
          if (lock->check()) return 3;
          std::this_thread::yield();
        }
        say(ready, result.grant.generation);
        ::unlink(inside.c_str());
        try {
          lock->release();
        } catch (const base::Error&) {  // it expires by itself
        }
      }
      return 0;
    }));
  }
  for (const json& fault : faults) api.fault(fault);
  std::set<std::uint64_t> generations;
  for (const auto& process : processes) {
    std::uint64_t last = 0;
    for (int turn = 0; turn < turns; ++turn) {
      const std::uint64_t generation = process->read().value_or(0);
      EXPECT_GT(generation, last);
      last = generation;
      EXPECT_TRUE(generations.insert(generation).second) << generation;
    }
    EXPECT_EQ(process->wait(), 0);
  }
}

TEST(KubeClient, NeverTwoInAStormOfConflicts) {
  take_turns({{{"verb", "update"}, {"count", 30}, {"do", "answer"}, {"status", 409}}}, 2, 5);
}

TEST(KubeClient, NeverTwoWhenUpdatesComeLate) {
  take_turns({{{"verb", "create"}, {"count", 1}, {"do", "slow"}, {"seconds", 1.3}},
              {{"verb", "update"}, {"count", 6}, {"do", "slow"}, {"seconds", 1.3}}},
             2, 3);
}

TEST(KubeClient, NeverTwoWhenAnswersAreLost) {
  take_turns({{{"verb", "create"}, {"count", 1}, {"do", "lost"}},
              {{"verb", "update"}, {"count", 6}, {"do", "lost"}},
              {{"verb", "update"}, {"count", 2}, {"do", "cut"}},
              {{"verb", "get"}, {"count", 3}, {"do", "cut"}}},
             2, 4);
}

// --- Queries.

TEST(KubeClient, StatusTellsWhoHoldsIt) {
  const KubeApi api;
  LockStatus status = read_lock_status(lock_in(api));
  EXPECT_FALSE(status.held);
  EXPECT_FALSE(status.last_generation);
  EXPECT_EQ(status.path, "k8s:ns/pair");
  const auto lock = open_lock(lock_in(api, "15s"), "engine-0");
  acquire(*lock);
  status = read_lock_status(lock_in(api));
  EXPECT_TRUE(status.held);
  EXPECT_EQ(status.holder, "engine-0");
  ASSERT_TRUE(status.record);
  EXPECT_EQ(status.record->generation, 1U);
  EXPECT_THAT(status.record->granted_at, testing::StartsWith("20"));
  lock->release();
  status = read_lock_status(lock_in(api));
  EXPECT_FALSE(status.held);
  EXPECT_EQ(status.last_generation, 1U);
}

TEST(KubeClient, ForeignHolderIsShownWholeUntilItsTimeIsWellOver) {
  const KubeApi api;
  const std::string identity = "host-1_8d3c1f0a-5b7e-4c1d-9a53-0d2f7c2b9e11";
  api.create(foreign_lease(identity, 15, "2026-01-01T00:00:00.000000Z"));
  EXPECT_EQ(find_owner(lock_in(api)), std::nullopt);
  const auto renew = [&](seconds ago) {
    api.edit([&](json& lease) {
      lease["spec"]["renewTime"] = kube::format_micro_time(std::chrono::system_clock::now() - ago);
    });
  };
  // The holder's clock may be slow.
  renew(seconds(45));
  EXPECT_EQ(find_owner(lock_in(api)), identity);
  renew(seconds(90));
  EXPECT_EQ(find_owner(lock_in(api)), std::nullopt);
  api.edit([](json& lease) { lease["spec"]["renewTime"] = "2199-01-01T00:00:00.000000Z"; });
  EXPECT_EQ(find_owner(lock_in(api)), identity);
  api.edit([](json& lease) { lease["spec"].erase("renewTime"); });
  EXPECT_EQ(find_owner(lock_in(api)), identity);
}

TEST(KubeClient, StatusThatCanNotBeToldHasItsReason) {
  const KubeApi api;
  const auto refusal = [&](const json& fault) {
    api.mend();
    api.fault(fault);
    return status_of([&] { find_owner(lock_in(api), milliseconds(300)); });
  };
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 401}}), ExitStatus::kNotPermitted);
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 403}}), ExitStatus::kNotPermitted);
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 500}}), ExitStatus::kUnavailable);
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 302}}), ExitStatus::kProtocol);
  EXPECT_EQ(refusal({{"verb", "get"}, {"status", 404}}), ExitStatus::kUnavailable);
  EXPECT_EQ(refusal({{"verb", "get"}, {"do", "hang"}}), ExitStatus::kTryAgain);
}

}  // namespace
}  // namespace fo::lock
