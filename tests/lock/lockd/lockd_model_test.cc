#include "lock/lockd/lockd_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>

#include "lock/lockd/wire.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using enum LockdPhase;

constexpr milliseconds kWindow{10000};
const RecordedProcess kOld{100, 5, 1};
const RecordedProcess kOldWorker{101, 6, 1};
const RecordedProcess kNew{200, 7, 1};

LoadedState held_by_a(std::vector<RecordedProcess> processes = {kOld}) {
  LockdState state;
  state.holder = "a";
  state.granted_at = *text::parse_time("2026-11-21T05:33:00.123Z");
  state.generation = state.last_generation = 7;
  state.connections = std::max<std::size_t>(processes.size(), 1);
  state.processes = std::move(processes);
  return {LoadedState::Kind::kState, state};
}

LoadedState free_after(std::uint64_t generation) {
  LockdState state;
  state.last_holder = "a";
  state.granted_at = *text::parse_time("2026-11-21T05:33:00.123Z");
  state.generation = state.last_generation = generation;
  return {LoadedState::Kind::kState, state};
}

const LockdTime kStart{std::chrono::steady_clock::time_point(seconds(1000)),
                       *text::parse_time("2026-11-21T06:00:00.000Z")};

// A server without sockets, and with a simulated disk.
class Desk {
 public:
  explicit Desk(const LoadedState& loaded = {}, std::vector<RecordedProcess> running = {},
                const LockdTime& begin = kStart, std::optional<milliseconds> expiry = std::nullopt)
      : now(begin), model(kWindow, loaded, std::move(running), now, expiry), disk(loaded.state) {
    collect();
  }

  void acquire(ConnectionId id, const std::string& engine,
               std::optional<std::uint64_t> claim = std::nullopt,
               std::optional<RecordedProcess> process = std::nullopt, bool lifeline = false) {
    const HoldBy hold_by = lifeline ? HoldBy::kLifeline : HoldBy::kConnection;
    model.acquire(id, {engine, claim}, {process, hold_by}, now);
    collect();
  }
  // A claim has the token of its grant.
  void acquire_lease(ConnectionId id, const std::string& engine,
                     std::optional<std::uint64_t> claim = std::nullopt) {
    acquire_lease(id, engine, claim, claim ? tokens[*claim] : "");
  }
  void acquire_lease(ConnectionId id, const std::string& engine, std::optional<std::uint64_t> claim,
                     const std::string& token) {
    model.acquire(id, {engine, claim, token},
                  {std::nullopt, HoldBy::kLease, "10.0.0.7:4711", "token " + std::to_string(id)},
                  now);
    collect();
  }
  void beat(ConnectionId id) {
    model.heartbeat(id, now);
    collect();
  }
  // The connection was silent for too long.
  void expire(ConnectionId id) {
    end_lifeline(id);
    close(id);
  }
  void claim(ConnectionId id, const std::string& engine, std::uint64_t generation) {
    acquire(id, engine, generation);
  }
  void close(ConnectionId id) {
    model.closed(id, now);
    collect();
  }
  void end_lifeline(ConnectionId id) {
    model.lifeline_ended(id, now);
    collect();
  }
  void end_process(const RecordedProcess& process) {
    model.process_ended(process, now);
    collect();
  }
  void finish_record() {
    ASSERT_TRUE(writing);
    writing = false;
    disk = pending;
    model.recorded(std::nullopt, now);
    collect();
  }
  // `renamed`: the new file was in place before the failure.
  void fail_record(bool renamed = false) {
    ASSERT_TRUE(writing);
    writing = false;
    if (renamed) disk = pending;
    model.recorded("the disk is full", now);
    collect();
  }
  void pass(milliseconds time) {
    now.steady += time;
    now.wall += time;
    model.tick(now);
    collect();
  }

  // The answers to this connection since the last call, as words.
  std::vector<std::string> heard(ConnectionId id) { return std::exchange(heard_[id], {}); }
  StatusAnswer status() const { return model.status(now); }

  LockdTime now;
  LockdModel model;
  /// A record is being written; with `slow_disk`, until the test finishes it.
  bool writing = false;
  bool slow_disk = false;
  LockdState disk;
  int records = 0;
  std::vector<std::string> warnings;
  /// Tokens of the grants, by generation.
  std::map<std::uint64_t, std::string> tokens;

 private:
  void collect() {
    LockdEffects effects = model.take_effects();
    for (const auto& note : effects.notes) {
      if (note.is_warning) warnings.push_back(note.text);
    }
    for (const auto& [id, answer] : effects.answers) {
      heard_[id].push_back(test::word_of(answer));
      const auto* granted = std::get_if<GrantedAnswer>(&answer);
      if (granted != nullptr) tokens[granted->generation] = granted->token;
    }
    if (!effects.record) return;
    ASSERT_FALSE(writing) << "two records at a time";
    writing = true;
    ++records;
    pending = *effects.record;
    if (!slow_disk) finish_record();
  }
  LockdState pending;
  std::map<ConnectionId, std::vector<std::string>> heard_;
};

// --- the table of the header

enum class Event {
  kAcquireOther,
  kAcquireSameId,
  kClaimThis,
  kClaimOther,
  kHolderCloses,
  kHolderAndLifelineEnd,
  kRecorded,
  kNotRecorded,
  kProcessEnds,
  kTimePasses,
  kWindowOver,
};
constexpr int kEvents = 11;

// Connection 1 is the holder, or is being recorded as the holder, and has a lifeline.
Desk make(LockdPhase phase) {
  switch (phase) {
    case kFree:
      return Desk(free_after(7));
    case kRecording: {
      Desk desk(free_after(6));
      desk.slow_disk = true;
      desk.acquire(1, "a", std::nullopt, kOld, true);
      return desk;
    }
    case kHeld: {
      Desk desk(free_after(6));
      desk.acquire(1, "a", std::nullopt, kOld, true);
      return desk;
    }
    case kRecovering:
      break;
  }
  return Desk(held_by_a());
}

void apply(Desk& desk, Event event) {
  switch (event) {
    case Event::kAcquireOther:
      return desk.acquire(2, "b", std::nullopt, kNew);
    case Event::kAcquireSameId:
      return desk.acquire(2, "a", std::nullopt, kNew);
    case Event::kClaimThis:
      return desk.claim(2, "a", 7);
    case Event::kClaimOther:
      return desk.claim(2, "a", 6);
    case Event::kHolderCloses:
      return desk.close(1);
    case Event::kHolderAndLifelineEnd:
      desk.close(1);
      return desk.end_lifeline(1);
    case Event::kRecorded:
      return desk.writing ? desk.finish_record() : void();
    case Event::kNotRecorded:
      return desk.writing ? desk.fail_record() : void();
    case Event::kProcessEnds:
      return desk.end_process(kOld);
    case Event::kTimePasses:
      return desk.pass(milliseconds(1));
    case Event::kWindowOver:
      return desk.pass(kWindow);
  }
}

TEST(LockdModelTable, EveryPhaseWithEveryEvent) {
  const std::map<LockdPhase, std::vector<LockdPhase>> expected{
      {kFree, {kHeld, kHeld, kHeld, kFree, kFree, kFree, kFree, kFree, kFree, kFree, kFree}},
      // A client without an answer has done nothing under the grant: its lifeline does not count.
      {kRecording,
       {kRecording, kRecording, kRecording, kRecording, kFree, kFree, kHeld, kRecording, kRecording,
        kRecording, kRecording}},
      {kHeld, {kHeld, kHeld, kHeld, kHeld, kHeld, kFree, kHeld, kHeld, kHeld, kHeld, kHeld}},
      {kRecovering,
       {kRecovering, kRecovering, kHeld, kRecovering, kRecovering, kRecovering, kRecovering,
        kRecovering, kRecovering, kRecovering, kFree}}};
  const std::map<LockdPhase, std::vector<std::string>> newcomer_hears{
      {kFree, {"granted 8", "granted 8", "granted 7", "refused 75"}},
      {kRecording, {"waiting for nobody", "", "", "refused 75"}},
      {kHeld, {"waiting for a", "granted 7", "granted 7", "refused 75"}},
      {kRecovering, {"waiting for a", "waiting for a", "granted 7", "refused 75"}}};
  for (const auto& [phase, after] : expected) {
    for (int i = 0; i < kEvents; ++i) {
      SCOPED_TRACE(testing::Message() << "phase " << static_cast<int>(phase) << " event " << i);
      Desk desk = make(phase);
      ASSERT_EQ(desk.model.phase(), phase);
      apply(desk, static_cast<Event>(i));
      EXPECT_EQ(desk.model.phase(), after[static_cast<std::size_t>(i)]);
      if (i >= 4) continue;
      const std::string& word = newcomer_hears.at(phase)[static_cast<std::size_t>(i)];
      const auto heard = desk.heard(2);
      EXPECT_EQ(heard.empty() ? "" : heard.back(), word);
    }
  }
}

// --- queue and grants

TEST(LockdModel, TheFirstIsGrantedAtOnceAndTheRestInTheirOrder) {
  Desk desk;
  for (ConnectionId id = 1; id <= 20; ++id) desk.acquire(id, "engine-" + std::to_string(id));
  EXPECT_THAT(desk.heard(1), ElementsAre("granted 1"));
  for (ConnectionId id = 1; id < 20; ++id) {
    EXPECT_EQ(desk.heard(id + 1).back(), "waiting for engine-" + std::to_string(id));
    desk.close(id);
    EXPECT_THAT(desk.heard(id + 1), ElementsAre("granted " + std::to_string(id + 1)));
  }
}

TEST(LockdModel, AWaiterThatLeavesIsPassedOver) {
  Desk desk;
  desk.acquire(1, "a");
  desk.acquire(2, "b", std::nullopt, std::nullopt, true);
  desk.acquire(3, "c");
  desk.close(2);
  desk.close(1);
  EXPECT_EQ(desk.heard(3).back(), "granted 2");
  EXPECT_EQ(desk.status().waiters.size(), 0U);
}

void ask(LockdModel& model, ConnectionId id, const LockdPeer& peer) {
  model.acquire(id, {"engine-" + std::to_string(id)}, peer, kStart);
}

// The answers to one connection since the last call, as words.
std::vector<std::string> words(LockdModel& model, ConnectionId id) {
  std::vector<std::string> all;
  const LockdEffects effects = model.take_effects();
  for (const auto& [to, answer] : effects.answers) {
    const auto* refused = std::get_if<RefusedAnswer>(&answer);
    if (to == id) all.push_back(refused != nullptr ? refused->reason : "waits");
  }
  return all;
}

TEST(LockdModel, OneProcessHasAFewPlacesInTheQueue) {
  LockdModel model(kWindow, held_by_a(), {}, kStart);
  const LockdPeer peer{kNew, HoldBy::kConnection, {}, {}, "process 200"};
  for (ConnectionId id = 1; id <= kMaxPlacesOfProcess; ++id) ask(model, id, peer);
  EXPECT_THAT(words(model, kMaxPlacesOfProcess), ElementsAre("waits"));
  const std::string reason = "too many connections from process 200 wait: 64";
  ask(model, 1000, peer);
  EXPECT_THAT(words(model, 1000), ElementsAre(reason));
  EXPECT_FALSE(model.closed(1000, kStart));
  // Other processes have their own limit, and one that leaves makes room.
  ask(model, 1001, {kOld, HoldBy::kConnection, {}, {}, "process 100"});
  EXPECT_THAT(words(model, 1001), ElementsAre("waits"));
  model.closed(7, kStart);
  ask(model, 1002, peer);
  EXPECT_THAT(words(model, 1002), ElementsAre("waits"));
  ask(model, 1003, peer);
  EXPECT_THAT(words(model, 1003), ElementsAre(reason));
}

TEST(LockdModel, OneAddressHasMorePlacesAndWhoIsGrantedTheLockLeavesOne) {
  Desk desk;
  const auto lease = [&](ConnectionId id) {
    desk.model.acquire(id, {"engine-" + std::to_string(id)},
                       {std::nullopt, HoldBy::kLease, "10.0.0.7:1", {}, "10.0.0.7"}, desk.now);
  };
  desk = Desk({}, {}, kStart, milliseconds(1000));
  desk.pass(kWindow);
  desk.slow_disk = true;
  for (ConnectionId id = 1; id <= kMaxPlaces + 1; ++id) lease(id);
  desk.pass(milliseconds(0));
  // The first one holds the lock and does not wait.
  EXPECT_THAT(desk.heard(kMaxPlaces + 1), ElementsAre("waiting for nobody"));
  lease(1000);
  desk.pass(milliseconds(0));
  EXPECT_THAT(desk.heard(1000), ElementsAre("refused 75"));
}

// A linear search for each waiter would take hours.
TEST(LockdModel, AHundredThousandWaitersComeAndGo) {
  constexpr ConnectionId kMany = 100'000;
  LockdModel model(kWindow, {}, {}, kStart);
  ask(model, kMany + 1, {});
  model.take_effects();
  model.recorded(std::nullopt, kStart);
  for (ConnectionId id = 1; id <= kMany; ++id) {
    ask(model, id, {kNew, HoldBy::kConnection, {}, {}, {}});
    model.take_effects();
  }
  EXPECT_EQ(model.status(kStart).waiters.size(), kMaxListed);
  for (ConnectionId id = kMany; id > 1; --id) {
    model.closed(id, kStart);
    model.take_effects();
  }
  EXPECT_EQ(model.status(kStart).waiters.size(), 1U);
}

TEST(LockdModel, AGrantIsToldAfterItIsOnFile) {
  Desk desk;
  desk.slow_disk = true;
  desk.acquire(1, "a", std::nullopt, kNew);
  EXPECT_THAT(desk.heard(1), IsEmpty());
  EXPECT_EQ(desk.status().holder, std::nullopt);
  EXPECT_EQ(desk.status().generation, 0U);
  EXPECT_THAT(desk.status().waiters, ElementsAre(StatusAnswer::Waiter{"a", 200}));
  desk.finish_record();
  EXPECT_THAT(desk.heard(1), ElementsAre("granted 1"));
  EXPECT_EQ(desk.disk.holder, "a");
  EXPECT_THAT(desk.disk.processes, ElementsAre(kNew));
  EXPECT_EQ(desk.status().generation, 1U);
  EXPECT_THAT(desk.status().connections, ElementsAre(StatusAnswer::Connection{200, true}));
}

TEST(LockdModel, CountsWhatItHas) {
  Desk desk;
  EXPECT_FALSE(desk.model.counts().is_held);
  desk.slow_disk = true;
  desk.acquire(1, "a");
  desk.acquire(2, "b");
  desk.fail_record();
  LockdCounts counts = desk.model.counts();
  EXPECT_FALSE(counts.is_held);
  EXPECT_EQ(counts.waiting, 2U);
  EXPECT_EQ(counts.holding, 0U);
  EXPECT_EQ(counts.grants, 0U);
  EXPECT_EQ(counts.record_failures, 1U);
  desk.pass(kRecordRetryInterval);
  desk.finish_record();
  desk.slow_disk = false;
  desk.acquire(3, "a");
  counts = desk.model.counts();
  EXPECT_TRUE(counts.is_held);
  EXPECT_EQ(counts.waiting, 1U);
  EXPECT_EQ(counts.holding, 2U);
  EXPECT_EQ(counts.grants, 1U);
  EXPECT_EQ(counts.generation, 1U);
  EXPECT_TRUE(Desk(held_by_a()).model.counts().is_recovering);
}

TEST(LockdModel, WhatCannotBeRecordedIsNotGrantedAndTriedAgain) {
  Desk desk;
  desk.slow_disk = true;
  desk.acquire(1, "a");
  desk.acquire(2, "b");
  for (int i = 0; i < 3; ++i) {
    desk.fail_record();
    EXPECT_FALSE(desk.writing);
    ASSERT_EQ(desk.model.wake_at(), desk.now.steady + kRecordRetryInterval);
    desk.pass(kRecordRetryInterval - milliseconds(1));
    EXPECT_FALSE(desk.writing);
    desk.pass(milliseconds(1));
    EXPECT_TRUE(desk.writing);
  }
  EXPECT_EQ(desk.warnings.size(), 1U);
  EXPECT_THAT(desk.heard(1), ElementsAre("waiting for nobody"));
  desk.finish_record();
  EXPECT_THAT(desk.heard(1), ElementsAre("granted 1"));
  EXPECT_EQ(desk.heard(2).back(), "waiting for a");
}

TEST(LockdModel, AClientThatLeavesWhileItsGrantIsRecordedNeverHadIt) {
  for (const bool works : {true, false}) {
    Desk desk;
    desk.slow_disk = true;
    desk.acquire(1, "a", std::nullopt, std::nullopt, true);
    desk.acquire(2, "b");
    desk.close(1);
    if (works) {
      desk.finish_record();
    } else {
      desk.fail_record();
      desk.pass(kRecordRetryInterval);
    }
    EXPECT_TRUE(desk.writing);
    desk.finish_record();
    EXPECT_THAT(desk.heard(1), IsEmpty());
    EXPECT_EQ(desk.heard(2).back(), "granted 2");
    EXPECT_EQ(desk.disk.holder, "b");
  }
}

TEST(LockdModel, AReleaseIsRecordedAndTheGrantAfterItIsTheOneRecordForBoth) {
  Desk desk;
  desk.acquire(1, "a");
  desk.close(1);
  EXPECT_EQ(desk.disk.holder, std::nullopt);
  EXPECT_EQ(desk.disk.generation, 1U);
  EXPECT_EQ(desk.records, 2);
  desk.acquire(2, "a");
  desk.acquire(3, "b");
  desk.close(2);
  EXPECT_EQ(desk.records, 4);
  EXPECT_EQ(desk.disk.holder, "b");
}

TEST(LockdModel, AReleaseThatIsNotRecordedIsTriedAgain) {
  Desk desk;
  desk.acquire(1, "a");
  desk.slow_disk = true;
  desk.close(1);
  for (int i = 0; i < 3; ++i) {
    desk.fail_record();
    ASSERT_EQ(desk.model.wake_at(), desk.now.steady + kRecordRetryInterval);
    desk.pass(kRecordRetryInterval);
  }
  EXPECT_EQ(desk.warnings.size(), 1U);
  desk.finish_record();
  EXPECT_EQ(desk.disk.holder, std::nullopt);
  EXPECT_EQ(desk.model.wake_at(), std::nullopt);
}

TEST(LockdModel, ARankThatLeftIsTriedAgainToBeRecorded) {
  Desk desk;
  desk.acquire(1, "a", std::nullopt, kOld);
  desk.acquire(2, "a", std::nullopt, kOldWorker);
  desk.slow_disk = true;
  desk.close(2);
  desk.fail_record();
  desk.pass(kRecordRetryInterval);
  desk.finish_record();
  EXPECT_THAT(desk.disk.processes, ElementsAre(kOld));
}

TEST(LockdModel, WhoComesAfterAReleaseThatWasNotRecordedIsGrantedWithTheNextRecord) {
  Desk desk;
  desk.acquire(1, "a");
  desk.slow_disk = true;
  desk.close(1);
  desk.acquire(2, "b");
  desk.fail_record();
  EXPECT_THAT(desk.heard(2), ElementsAre("waiting for nobody"));
  desk.pass(kRecordRetryInterval);
  desk.finish_record();
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 2"));
}

// A failed write may still have replaced the file.
TEST(LockdModel, AfterAFailureNothingIsTakenForRecorded) {
  Desk desk;
  desk.acquire(1, "a", std::nullopt, kOld);
  desk.slow_disk = true;
  desk.acquire(2, "a", std::nullopt, kOldWorker);
  desk.fail_record(true);
  desk.close(2);
  // The state before the failure has to be written, because the file's content is unknown.
  desk.pass(kRecordRetryInterval);
  ASSERT_TRUE(desk.writing);
  desk.close(1);
  desk.fail_record(true);
  desk.acquire(3, "a", std::nullopt, kOld);
  EXPECT_THAT(desk.heard(3), ElementsAre("waiting for nobody"));
  desk.pass(kRecordRetryInterval);
  desk.finish_record();
  EXPECT_THAT(desk.heard(3), ElementsAre("granted 2"));
  EXPECT_EQ(desk.disk.generation, 2U);
}

TEST(LockdModel, WhoComesWhileTheReleaseIsRecordedIsGrantedWithoutAWordBefore) {
  Desk desk;
  desk.acquire(1, "a");
  desk.slow_disk = true;
  desk.close(1);
  ASSERT_TRUE(desk.writing);
  desk.acquire(2, "b");
  EXPECT_THAT(desk.heard(2), IsEmpty());
  desk.finish_record();
  desk.finish_record();
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 2"));
}

// --- several connections of one engine

TEST(LockdModel, ConnectionsOfTheHolderPassTheQueueAndTheLastOneFreesTheLock) {
  Desk desk;
  desk.acquire(1, "a", std::nullopt, kOld);
  desk.acquire(2, "b");
  desk.acquire(3, "a", std::nullopt, kOldWorker);
  EXPECT_THAT(desk.heard(3), ElementsAre("granted 1"));
  EXPECT_THAT(desk.disk.processes, ElementsAre(kOld, kOldWorker));
  EXPECT_EQ(desk.disk.connections, 2U);
  desk.close(1);
  EXPECT_THAT(desk.heard(2), ElementsAre("waiting for a"));
  EXPECT_THAT(desk.disk.processes, ElementsAre(kOldWorker));
  desk.close(3);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 2"));
}

TEST(LockdModel, AJoinIsToldAfterItIsOnFile) {
  Desk desk;
  desk.acquire(1, "a", std::nullopt, kOld);
  desk.slow_disk = true;
  desk.acquire(2, "a", std::nullopt, kOldWorker);
  desk.fail_record();
  EXPECT_THAT(desk.heard(2), ElementsAre("waiting for a"));
  EXPECT_EQ(desk.model.phase(), kHeld);
  desk.pass(kRecordRetryInterval);
  desk.finish_record();
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 1"));
}

TEST(LockdModel, ARankThatIsNotVisibleIsToldAfterItIsCounted) {
  Desk desk;
  desk.acquire(1, "a");
  desk.slow_disk = true;
  desk.acquire(2, "a");
  EXPECT_THAT(desk.heard(2), IsEmpty());
  desk.finish_record();
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 1"));
  EXPECT_EQ(desk.disk.connections, 2U);
}

TEST(LockdModel, RanksThatWaitTogetherAreGrantedTogether) {
  Desk desk;
  desk.acquire(1, "a");
  desk.acquire(2, "b");
  desk.acquire(3, "c");
  desk.acquire(4, "b");
  desk.close(1);
  EXPECT_EQ(desk.heard(2).back(), "granted 2");
  EXPECT_EQ(desk.heard(4).back(), "granted 2");
  EXPECT_EQ(desk.heard(3).back(), "waiting for b");
  EXPECT_EQ(desk.disk.connections, 2U);
}

// --- lifelines

TEST(LockdModel, ALifelineKeepsTheLockAfterTheConnection) {
  Desk desk;
  desk.acquire(1, "a", std::nullopt, kOld, true);
  desk.acquire(2, "b");
  EXPECT_TRUE(desk.model.closed(1, desk.now));
  EXPECT_EQ(desk.model.phase(), kHeld);
  EXPECT_THAT(desk.status().connections, ElementsAre(StatusAnswer::Connection{100, false}));
  // This is another process with the same id: it could join only an open connection.
  desk.acquire(3, "a");
  EXPECT_THAT(desk.heard(3), ElementsAre("waiting for a"));
  desk.heard(2);
  desk.end_lifeline(1);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 2"));
}

TEST(LockdModel, ALifelineThatEndsFirstDoesNotFreeTheLock) {
  Desk desk;
  desk.acquire(1, "a", std::nullopt, kOld, true);
  desk.acquire(2, "b");
  desk.end_lifeline(1);
  EXPECT_EQ(desk.model.phase(), kHeld);
  desk.close(1);
  EXPECT_EQ(desk.heard(2).back(), "granted 2");
}

TEST(LockdModel, AReturningHolderKeepsItsLifelineBeforeItIsTold) {
  Desk desk(free_after(6));
  desk.slow_disk = true;
  desk.acquire(1, "a", 6, kOld, true);
  EXPECT_EQ(desk.model.phase(), kHeld);
  EXPECT_TRUE(desk.model.closed(1, desk.now));
  desk.finish_record();
  EXPECT_EQ(desk.model.phase(), kHeld);
  desk.end_lifeline(1);
  EXPECT_EQ(desk.model.phase(), kFree);
}

// --- claims

TEST(LockdModel, AClaimOfThePresentGrantPassesTheQueue) {
  Desk desk;
  desk.acquire(1, "a", std::nullopt, kOld, true);
  desk.acquire(2, "b");
  desk.close(1);
  desk.claim(3, "a", 1);
  EXPECT_THAT(desk.heard(3), ElementsAre("granted 1"));
  desk.end_lifeline(1);
  EXPECT_EQ(desk.model.phase(), kHeld);
}

TEST(LockdModel, AClaimOfAFreeLockIsGrantedUnlessSomebodyHadItSince) {
  Desk desk(free_after(7));
  desk.claim(1, "a", 6);
  EXPECT_THAT(desk.heard(1), ElementsAre("refused 75"));
  desk.claim(2, "a", 7);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
  desk.close(2);
  desk.claim(3, "a", 20);  // the state file was older than the grant
  EXPECT_THAT(desk.heard(3), ElementsAre("granted 20"));
  desk.close(3);
  desk.acquire(4, "b");
  EXPECT_THAT(desk.heard(4), ElementsAre("granted 21"));
}

TEST(LockdModel, TheLastGrantOfAFreeLockIsForItsHolderOnly) {
  Desk desk(free_after(7));
  desk.claim(1, "b", 7);
  EXPECT_THAT(desk.heard(1), ElementsAre("refused 75"));
  desk.claim(2, "a", 7);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
  EXPECT_EQ(desk.status().granted_at, text::parse_time("2026-11-21T05:33:00.123Z"));
  desk.close(2);
  desk.claim(3, "b", 7);
  EXPECT_THAT(desk.heard(3), ElementsAre("refused 75"));
  Desk next({LoadedState::Kind::kState, *decode_state(encode_state(desk.disk))});
  next.claim(1, "b", 7);
  EXPECT_THAT(next.heard(1), ElementsAre("refused 75"));
  next.claim(2, "a", 7);
  EXPECT_THAT(next.heard(2), ElementsAre("granted 7"));
  LoadedState by_nobody = free_after(7);
  by_nobody.state.last_holder.reset();
  Desk other(by_nobody);
  other.claim(1, "a", 7);
  EXPECT_THAT(other.heard(1), ElementsAre("refused 75"));
}

TEST(LockdModel, AGenerationThatIsRefusedIsNotGivenAgain) {
  Desk desk;  // the state was lost
  desk.acquire(1, "b");
  desk.claim(2, "a", 3);
  EXPECT_THAT(desk.heard(2), ElementsAre("refused 75"));
  EXPECT_EQ(desk.disk.last_generation, 3U);
  desk.close(1);
  Desk next({LoadedState::Kind::kState, *decode_state(encode_state(desk.disk))});
  next.acquire(1, "c");
  EXPECT_THAT(next.heard(1), ElementsAre("granted 4"));
  desk.claim(3, "b", 1);
  EXPECT_THAT(desk.heard(3), ElementsAre("granted 1"));
  desk.close(3);
  desk.acquire(4, "c");
  EXPECT_THAT(desk.heard(4), ElementsAre("granted 4"));
}

TEST(LockdModel, AClaimWithoutAStateFileIsGrantedAndLaterOnesAreHigher) {
  Desk desk;
  desk.claim(1, "a", 7);
  EXPECT_THAT(desk.heard(1), ElementsAre("granted 7"));
  desk.claim(2, "b", 7);
  EXPECT_THAT(desk.heard(2), ElementsAre("refused 75"));
  desk.acquire(3, "b");
  desk.close(1);
  EXPECT_EQ(desk.heard(3).back(), "granted 8");
}

// --- recovery

TEST(LockdModel, TheHolderComesBackWithItsClaimToTheSameGrant) {
  Desk desk(held_by_a());
  desk.acquire(1, "b");
  EXPECT_THAT(desk.heard(1), ElementsAre("waiting for a"));
  desk.pass(kWindow - milliseconds(1));
  EXPECT_EQ(desk.status().window_left, milliseconds(1));
  desk.claim(2, "a", 7);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
  EXPECT_EQ(desk.status().granted_at, text::parse_time("2026-11-21T05:33:00.123Z"));
  EXPECT_EQ(desk.status().window_left, std::nullopt);
  desk.pass(kWindow);
  EXPECT_EQ(desk.model.phase(), kHeld);
  EXPECT_THAT(desk.heard(1), IsEmpty());
}

TEST(LockdModel, ARecordedProcessComesBackWithoutAClaim) {
  Desk desk(held_by_a(), {kOld});
  desk.acquire(1, "b", std::nullopt, kOld);  // its id is another engine's
  EXPECT_THAT(desk.heard(1), ElementsAre("waiting for a"));
  desk.acquire(2, "a", std::nullopt, kOld);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
}

TEST(LockdModel, AHolderThatIsOnFileComesBackAlsoWhereNothingCanBeRecorded) {
  Desk desk(held_by_a({kOld, kOldWorker}), {kOld});
  desk.slow_disk = true;
  desk.acquire(1, "a", 7, kOld);
  EXPECT_THAT(desk.heard(1), ElementsAre("granted 7"));
  // The state file does not have this other process of the holder.
  desk.acquire(2, "a", 7, kNew);
  EXPECT_THAT(desk.heard(2), IsEmpty());
}

TEST(LockdModel, TheSameIdWithoutClaimOrProcessIsNotTheHolder) {
  Desk desk(held_by_a());
  desk.acquire(1, "a", std::nullopt, kNew);
  EXPECT_THAT(desk.heard(1), ElementsAre("waiting for a"));
  desk.pass(kWindow);
  EXPECT_THAT(desk.heard(1), ElementsAre("granted 8"));
}

TEST(LockdModel, WhenTheWindowIsOverTheFirstInTheQueueIsNext) {
  Desk desk(held_by_a());
  desk.acquire(1, "b");
  desk.acquire(2, "c");
  ASSERT_EQ(desk.model.wake_at(), desk.now.steady + kWindow);
  desk.pass(kWindow - milliseconds(1));
  EXPECT_EQ(desk.model.phase(), kRecovering);
  desk.pass(milliseconds(1));
  EXPECT_EQ(desk.heard(1).back(), "granted 8");
  EXPECT_EQ(desk.heard(2).back(), "waiting for b");
  desk.claim(3, "a", 7);
  EXPECT_THAT(desk.heard(3), ElementsAre("refused 75"));
}

TEST(LockdModel, WithoutAnybodyElseALateHolderStillGetsItsGrantBack) {
  Desk desk(held_by_a());
  desk.pass(kWindow);
  EXPECT_EQ(desk.model.phase(), kFree);
  desk.claim(1, "a", 7);
  EXPECT_THAT(desk.heard(1), ElementsAre("granted 7"));
}

TEST(LockdModel, AVisibleHolderThatHangsBlocksUntilItEnds) {
  Desk desk(held_by_a({kOld, kOldWorker}), {kOld, kOldWorker});
  desk.acquire(1, "b");
  desk.pass(kWindow);
  EXPECT_EQ(desk.model.phase(), kRecovering);
  EXPECT_EQ(desk.warnings.size(), 2U);
  EXPECT_EQ(desk.warnings.front(),
            "process 100 of 'a' runs and did not reconnect: the lock is not granted until it ends");
  EXPECT_EQ(desk.model.wake_at(), std::nullopt);
  EXPECT_THAT(desk.status().awaited_pids, ElementsAre(100, 101));
  EXPECT_EQ(desk.status().window_left, milliseconds(0));
  desk.pass(seconds(3600));
  EXPECT_EQ(desk.warnings.size(), 2U);
  desk.end_process(kOld);
  EXPECT_EQ(desk.model.phase(), kRecovering);
  desk.end_process(kOldWorker);
  EXPECT_EQ(desk.heard(1).back(), "granted 8");
}

TEST(LockdModel, ADeadHolderStillHasItsWindow) {
  Desk desk(held_by_a(), {kOld});
  desk.acquire(1, "b");
  desk.end_process(kOld);
  EXPECT_EQ(desk.model.phase(), kRecovering);
  desk.pass(kWindow);
  EXPECT_EQ(desk.heard(1).back(), "granted 8");
}

TEST(LockdModel, AHungHolderThatWakesUpGetsItsGrantBack) {
  Desk desk(held_by_a(), {kOld});
  desk.acquire(1, "b");
  desk.pass(kWindow);
  desk.pass(milliseconds(500));
  desk.acquire(2, "a", std::nullopt, kOld);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
  desk.end_process(kOld);
  desk.close(2);
  EXPECT_EQ(desk.heard(1).back(), "granted 8");
}

TEST(LockdModel, TheRanksNotYetBackAreWaitedForWhenTheFirstOneGoesAgain) {
  Desk desk(held_by_a({kOld, kOldWorker}), {kOldWorker});
  desk.acquire(1, "a", 7, kOld);
  desk.acquire(2, "b");
  desk.close(1);
  EXPECT_EQ(desk.model.phase(), kRecovering);
  EXPECT_THAT(desk.heard(2), ElementsAre("waiting for a"));
  desk.acquire(3, "a", 7, kOldWorker);
  EXPECT_THAT(desk.heard(3), ElementsAre("granted 7"));
  desk.close(3);
  // The first process may reconnect once more.
  EXPECT_EQ(desk.model.phase(), kRecovering);
  desk.pass(kWindow);
  EXPECT_EQ(desk.heard(2).back(), "granted 8");
}

TEST(LockdModel, WhoJoinsDuringTheWindowIsNobodyWhoCameBack) {
  LoadedState two_ranks = held_by_a({});
  two_ranks.state.connections = 2;
  Desk desk(two_ranks);
  desk.claim(1, "a", 7);
  desk.acquire(2, "a");
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
  desk.acquire(3, "b");
  desk.close(1);
  desk.close(2);
  EXPECT_EQ(desk.model.phase(), kRecovering);
  desk.claim(4, "a", 7);
  EXPECT_THAT(desk.heard(4), ElementsAre("granted 7"));
  EXPECT_THAT(desk.heard(3), ElementsAre("waiting for a"));
}

TEST(LockdModel, ARankThatComesBackTwiceCountsOnce) {
  for (const bool lifeline : {true, false}) {
    LoadedState two_ranks = held_by_a({});
    two_ranks.state.connections = 2;
    Desk desk(two_ranks);
    desk.acquire(1, "a", 7, std::nullopt, lifeline);
    desk.close(1);
    desk.acquire(2, "a", 7, std::nullopt, lifeline);
    desk.acquire(3, "b");
    desk.close(2);
    desk.end_lifeline(1);
    desk.end_lifeline(2);
    EXPECT_EQ(desk.model.phase(), kRecovering);
  }
  // The same if the end of its first connection was not read yet.
  Desk desk(held_by_a({kOld, kOldWorker}));
  desk.acquire(1, "a", 7, kOld);
  desk.acquire(2, "a", 7, kOld);
  desk.close(1);
  desk.close(2);
  EXPECT_EQ(desk.model.phase(), kRecovering);
}

TEST(LockdModel, WhenAllRanksWereBackTheLockIsFreeAfterThem) {
  Desk desk(held_by_a({kOld, kOldWorker}), {kOld, kOldWorker});
  desk.acquire(1, "a", 7, kOld);
  desk.acquire(2, "a", 7, kOldWorker);
  desk.acquire(3, "b");
  desk.close(1);
  desk.close(2);
  EXPECT_EQ(desk.heard(3).back(), "granted 8");
}

TEST(LockdModel, AFileThatDoesNotCountConnectionsMakesTheWindowLast) {
  LoadedState uncounted = held_by_a({});
  uncounted.state.connections.reset();
  Desk desk(uncounted);
  desk.claim(1, "a", 7);
  desk.acquire(2, "b");
  desk.close(1);
  EXPECT_EQ(desk.model.phase(), kRecovering);
  desk.pass(kWindow);
  EXPECT_EQ(desk.heard(2).back(), "granted 8");
}

TEST(LockdModel, AHolderWithoutAGenerationHasItsWindowAndTheNextIsTheFirst) {
  LoadedState foreign = held_by_a({});
  foreign.state.generation = foreign.state.last_generation = 0;
  foreign.state.connections.reset();
  Desk desk(foreign);
  desk.model.acquire(1, {"b"}, LockdPeer{}, desk.now);
  const LockdEffects effects = desk.model.take_effects();
  ASSERT_EQ(effects.answers.size(), 1U);
  const auto waiting =
      std::get<WaitingAnswer>(decode_answer(encode_answer(effects.answers[0].second)));
  EXPECT_EQ(waiting.holder, "a");
  EXPECT_EQ(waiting.generation, std::nullopt);
  desk.pass(kWindow);
  EXPECT_THAT(desk.heard(1), ElementsAre("granted 1"));
}

TEST(LockdModel, AServerThatWasHeldUpAtTheEndOfTheWindowGivesALittleMore) {
  Desk desk(held_by_a());
  desk.acquire(1, "b");
  desk.pass(kWindow + kWindowLateness + milliseconds(1));
  EXPECT_EQ(desk.model.phase(), kRecovering);
  EXPECT_EQ(desk.warnings.size(), 1U);
  EXPECT_EQ(desk.status().window_left, kWindowExtension);
  desk.claim(2, "a", 7);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));

  Desk dead(held_by_a());
  dead.acquire(1, "b");
  dead.pass(kWindow + seconds(60));
  dead.pass(kWindowExtension);
  EXPECT_EQ(dead.heard(1).back(), "granted 8");
}

TEST(LockdModel, ASecondRestartFindsWhatTheFirstLeft) {
  Desk first(held_by_a({kOld, kOldWorker}), {kOld, kOldWorker});
  first.acquire(1, "a", 7, kNew);
  // The processes that have not reconnected yet are still recorded.
  EXPECT_THAT(first.disk.processes, ElementsAre(kNew, kOld, kOldWorker));
  Desk second({LoadedState::Kind::kState, first.disk}, {kOldWorker});
  second.acquire(1, "a", std::nullopt, kOldWorker);
  EXPECT_THAT(second.heard(1), ElementsAre("granted 7"));
}

TEST(LockdModel, ADamagedFileGivesAnyClaimOneWindow) {
  Desk desk({LoadedState::Kind::kDamaged, {}});
  EXPECT_EQ(desk.warnings.size(), 1U);
  desk.acquire(1, "b");
  EXPECT_THAT(desk.heard(1), ElementsAre("waiting for nobody"));
  EXPECT_EQ(desk.status().window_left, kWindow);
  desk.claim(2, "a", 7);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
  EXPECT_THAT(desk.heard(1), ElementsAre("waiting for a"));
  desk.claim(3, "c", 9);
  EXPECT_THAT(desk.heard(3), ElementsAre("refused 75"));
  // The number of the holder's other processes is unknown.
  desk.close(2);
  EXPECT_EQ(desk.model.phase(), kRecovering);
  desk.pass(kWindow);
  const std::uint64_t ms = 1795240800000;  // the time of the test, since 1970
  EXPECT_THAT(desk.heard(1), ElementsAre("granted " + std::to_string(ms)));
}

TEST(LockdModel, GenerationsStayHighAcrossARestartAfterDamage) {
  Desk first({LoadedState::Kind::kDamaged, {}});
  first.claim(1, "a", 7);
  EXPECT_EQ(first.disk.generation, 7U);
  Desk second({LoadedState::Kind::kState, *decode_state(encode_state(first.disk))});
  second.claim(1, "a", 7);
  EXPECT_THAT(second.heard(1), ElementsAre("granted 7"));
  second.acquire(2, "b");
  second.close(1);
  second.pass(kWindow);
  EXPECT_EQ(second.heard(2).back(), "granted 1795240800000");
}

TEST(LockdModel, WithoutAClaimADamagedFileCostsOneWindow) {
  Desk desk({LoadedState::Kind::kDamaged, {}});
  desk.acquire(1, "b");
  desk.pass(kWindow);
  EXPECT_EQ(desk.heard(1).back(), "granted 1795240800000");
  desk.claim(2, "a", 7);
  EXPECT_THAT(desk.heard(2), ElementsAre("refused 75"));
}

// --- random events

// Engines, a disk and a server to which anything may happen.
class World {
 public:
  explicit World(unsigned seed) : random_(seed) { restart(); }

  void step() {
    switch (pick(16)) {
      case 0:
      case 1:
      case 2:
        return come();
      case 3:
      case 4:
        if (Rank* rank = any([](const Rank& r) { return r.connected; })) disconnect(*rank);
        return;
      case 5:
      case 6:
        if (Rank* rank = any([](const Rank& r) { return !r.connected && !r.away; })) die(*rank);
        return;
      case 7:
      case 8:
        if (Rank* rank = any([](const Rank& r) { return !r.connected; })) come_back(*rank);
        return;
      case 9:
        if (Rank* rank = any([](const Rank& r) { return r.away; })) die(*rank);
        return;
      case 10:
      case 11:
      case 12:
        if (desk_->writing) desk_->finish_record();
        return;
      case 13:
        if (desk_->writing) desk_->fail_record(pick(2) == 0);
        return;
      case 14:
        return pick(3) == 0 ? restart() : void();
      default:
        return pass(milliseconds(pick(4) == 0 ? pick(12000) : pick(600)));
    }
  }

  // Checks the answers of this step; the invariants are those of the lock itself.
  void check() {
    for (auto& [id, rank] : ranks_) {
      if (!rank.connected) continue;
      for (const std::string& word : desk_->heard(id)) {
        if (word.starts_with("refused")) {
          // A holder that reconnects in time keeps the lock.
          ASSERT_FALSE(rank.must_return) << rank.engine << " " << rank.generation;
          rank.connected = rank.lifeline = rank.asks = false;
          rank.generation = 0;
        }
        if (!word.starts_with("granted ")) continue;
        const std::uint64_t generation = std::stoull(word.substr(8));
        ASSERT_TRUE(rank.generation == 0 || rank.generation == generation);
        rank.generation = generation;
        rank.asks = rank.must_return = false;
        const auto [at, is_new] = generations_.emplace(generation, rank.engine);
        ASSERT_EQ(at->second, rank.engine) << "generation " << generation << " came twice";
        ASSERT_TRUE(!is_new || generations_.rbegin()->first == generation);
        ASSERT_EQ(desk_->disk.holder, rank.engine) << "not on file";
        ASSERT_EQ(desk_->disk.generation, generation);
        for (const auto& [other_id, other] : ranks_) {
          ASSERT_TRUE(other.generation == 0 || other.engine == rank.engine)
              << other.engine << " has generation " << other.generation << ", " << rank.engine
              << " was granted " << generation;
        }
      }
    }
    std::erase_if(ranks_, [](const auto& each) {
      return !each.second.connected && each.second.generation == 0;
    });
  }

  // If the disk works and every holder ends, every waiter gets the lock.
  void end() {
    desk_->slow_disk = false;
    if (desk_->writing) desk_->finish_record();
    pass(kRecordRetryInterval);
    check();
    while (Rank* rank = any([](const Rank& r) { return r.away || !r.connected; })) die(*rank);
    pass(kWindow);
    pass(kWindowExtension);
    check();
    while (!ranks_.empty()) {
      const std::vector<StatusAnswer::Waiter> waiters = desk_->status().waiters;
      bool some = false;
      while (Rank* rank = any([](const Rank& r) { return r.generation != 0; })) {
        some = true;
        die(*rank);
      }
      check();
      ASSERT_TRUE(some) << ranks_.size() << " wait in vain";
      const bool next_has_it =
          waiters.empty() || desk_->status().holder == waiters.front().engine_id;
      ASSERT_TRUE(next_has_it);
    }
    EXPECT_EQ(desk_->model.phase(), kFree);
    EXPECT_FALSE(desk_->writing);
    EXPECT_EQ(desk_->disk.holder, std::nullopt);
  }

 private:
  struct Rank {
    std::string engine;
    std::optional<RecordedProcess> process;
    /// The generation that it believes to hold; 0 for none.
    std::uint64_t generation = 0;
    bool connected = true;
    bool lifeline = false;
    bool asks = true;
    /// Its server has ended.
    bool away = false;
    bool must_return = false;
  };

  unsigned pick(unsigned count) { return static_cast<unsigned>(random_() % count); }
  Rank* any(const std::function<bool(const Rank&)>& wanted) {
    std::vector<Rank*> found;
    for (auto& [id, rank] : ranks_) {
      if (wanted(rank)) found.push_back(&rank);
    }
    return found.empty() ? nullptr : found[pick(static_cast<unsigned>(found.size()))];
  }
  ConnectionId id_of(const Rank& rank) {
    return std::find_if(ranks_.begin(), ranks_.end(),
                        [&](const auto& each) { return &each.second == &rank; })
        ->first;
  }

  void come() {
    Rank rank;
    rank.engine = std::string(1, static_cast<char>('a' + pick(2)));
    rank.lifeline = pick(2) == 0;
    const auto next = static_cast<pid_t>(next_id_);
    if (pick(2) == 0) rank.process = RecordedProcess{next, next_id_, 1};
    std::optional<std::uint64_t> claim;
    // It may claim any generation except another engine's.
    if (pick(4) == 0) claim = 1 + pick(2 * static_cast<unsigned>(generations_.size()) + 2);
    if (claim && generations_.contains(*claim) && generations_[*claim] != rank.engine)
      claim.reset();
    const auto process = rank.process;
    const bool lifeline = rank.lifeline;
    const std::string engine = rank.engine;
    ranks_[next_id_] = std::move(rank);
    desk_->acquire(next_id_++, engine, claim, process, lifeline);
  }

  // A running process connects again. The server keeps the lifeline of its old connection.
  void come_back(Rank& rank) {
    Rank back = rank;
    const ConnectionId old = id_of(rank);
    back.connected = back.asks = true;
    back.must_return = true;
    back.away = false;
    const bool was_away = rank.away;
    ranks_.erase(old);
    if (!was_away) lifelines_[next_id_] = old;
    const bool by_process =
        was_away && back.process && pick(2) == 0 && desk_->disk.holder == back.engine &&
        std::find(running_.begin(), running_.end(), *back.process) != running_.end();
    ranks_[next_id_] = back;
    desk_->acquire(next_id_++, back.engine,
                   by_process ? std::nullopt : std::optional(back.generation), back.process,
                   back.lifeline);
  }

  void disconnect(Rank& rank) {
    const ConnectionId id = id_of(rank);
    desk_->heard(id);
    rank.connected = rank.asks = false;
    // A rank without a lifeline ends with its connection, and so does one without an answer yet.
    if (!rank.lifeline) rank.generation = 0;
    desk_->close(id);
    if (rank.generation == 0) die(rank);
  }

  void die(Rank& rank) {
    const ConnectionId id = id_of(rank);
    const std::optional<RecordedProcess> process = rank.process;
    const bool was_away = rank.away;
    const bool was_connected = rank.connected;
    ranks_.erase(id);
    if (process) std::erase(running_, *process);
    if (process) desk_->end_process(*process);
    if (was_away) return;
    if (was_connected) desk_->close(id);
    for (std::optional<ConnectionId> at = id; at;) {
      desk_->end_lifeline(*at);
      const auto before = lifelines_.find(*at);
      at = before == lifelines_.end() ? std::nullopt : std::optional(before->second);
    }
  }

  void restart() {
    const LockdTime now = desk_ ? desk_->now : kStart;
    LockdState disk = desk_ ? *decode_state(encode_state(desk_->disk)) : LockdState{};
    lifelines_.clear();
    running_.clear();
    for (auto& [id, rank] : ranks_) {
      // A new server has no lifelines, and no waiters from before.
      if (!rank.connected && !rank.away) rank.generation = 0;
      rank.connected = rank.asks = rank.must_return = false;
      rank.away = true;
    }
    std::erase_if(ranks_, [](const auto& each) { return each.second.generation == 0; });
    for (const auto& [id, rank] : ranks_) {
      const auto& all = disk.processes;
      if (rank.process && std::find(all.begin(), all.end(), *rank.process) != all.end()) {
        running_.push_back(*rank.process);
      }
    }
    desk_ = std::make_unique<Desk>(LoadedState{LoadedState::Kind::kState, disk}, running_, now);
    desk_->slow_disk = true;
    window_end_ = now.steady + kWindow;
  }

  void pass(milliseconds time) {
    desk_->pass(time);
    const auto late = desk_->now.steady - window_end_;
    if (window_end_ == kOver || late < milliseconds(0)) return;
    if (late > kWindowLateness) {
      window_end_ = desk_->now.steady + kWindowExtension;
      return;
    }
    window_end_ = kOver;
    // From now on a rank is fenced off, unless its process is visible.
    for (auto& [id, rank] : ranks_) {
      const bool seen = rank.process && std::find(running_.begin(), running_.end(),
                                                  *rank.process) != running_.end();
      if (rank.away && !seen) rank.generation = 0;
    }
    std::erase_if(ranks_,
                  [](const auto& each) { return each.second.away && each.second.generation == 0; });
  }

  static constexpr auto kOver = std::chrono::steady_clock::time_point::max();
  std::mt19937 random_;
  std::unique_ptr<Desk> desk_;
  std::map<ConnectionId, Rank> ranks_;
  /// The previous connection of the same process.
  std::map<ConnectionId, ConnectionId> lifelines_;
  std::vector<RecordedProcess> running_;
  std::map<std::uint64_t, std::string> generations_;
  std::chrono::steady_clock::time_point window_end_;
  ConnectionId next_id_ = 1;
};

TEST(LockdModel, NeverHasTwoHoldersNorAGenerationTwiceAndEverybodyGetsHisTurn) {
  for (unsigned seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    World world(seed);
    for (int i = 0; i < 400; ++i) {
      world.step();
      world.check();
      if (testing::Test::HasFatalFailure()) return;
    }
    world.end();
    if (testing::Test::HasFatalFailure()) return;
  }
}

// --- leases

constexpr milliseconds kExpiry{5000};

Desk lease_desk(const LoadedState& loaded = free_after(6)) {
  Desk desk(loaded, {}, kStart, kExpiry);
  desk.tokens[7] = "token";
  return desk;
}

// Held by a lease of generation 7.
LoadedState leased_by_a(milliseconds expiry = kExpiry) {
  LoadedState loaded = held_by_a({});
  loaded.state.expiry = expiry;
  loaded.state.token = "token";
  return loaded;
}

TEST(LockdModelLease, AClaimTakesTheTokenOfItsGrant) {
  Desk desk = lease_desk();
  desk.acquire_lease(1, "a");
  EXPECT_EQ(desk.tokens[7], "token 1");
  EXPECT_EQ(desk.disk.token, "token 1");
  desk.acquire_lease(2, "a", 7, "");
  desk.acquire_lease(3, "a", 7, "token 2");
  EXPECT_THAT(desk.heard(2), ElementsAre("refused 75"));
  EXPECT_THAT(desk.heard(3), ElementsAre("refused 75"));
  desk.acquire_lease(4, "a", 7, "token 1");
  EXPECT_THAT(desk.heard(4), ElementsAre("granted 7"));
  // The token belongs to the grant, not to the connection.
  EXPECT_EQ(desk.tokens[7], "token 1");
  desk.expire(1);
  desk.expire(4);
  // The state of a free lock keeps the token of the last grant.
  EXPECT_EQ(desk.disk.token, "token 1");
  desk.acquire_lease(5, "a", 7, "token 2");
  EXPECT_THAT(desk.heard(5), ElementsAre("refused 75"));
  desk.acquire_lease(6, "a", 7, "token 1");
  EXPECT_THAT(desk.heard(6), ElementsAre("granted 7"));
}

TEST(LockdModelLease, AGrantThatIsNoLeaseIsNotClaimedByOne) {
  Desk desk = lease_desk();
  desk.acquire(1, "a", std::nullopt, kNew);
  EXPECT_EQ(desk.disk.token, "");
  desk.acquire_lease(2, "a", 7, "");
  desk.acquire_lease(3, "a", 7, "token");
  EXPECT_THAT(desk.heard(2), ElementsAre("refused 75"));
  EXPECT_THAT(desk.heard(3), ElementsAre("refused 75"));
  desk.claim(4, "a", 7);
  EXPECT_THAT(desk.heard(4), ElementsAre("granted 7"));
}

TEST(LockdModelLease, ANewServerKnowsTheToken) {
  Desk desk = lease_desk(leased_by_a());
  desk.acquire_lease(1, "a", 7, "other");
  EXPECT_THAT(desk.heard(1), ElementsAre("refused 75"));
  EXPECT_EQ(desk.model.phase(), kRecovering);
  desk.acquire_lease(2, "a", 7, "token");
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
  EXPECT_EQ(desk.disk.token, "token");
}

TEST(LockdModelLease, WhereTheStateIsLostAClaimBringsItsToken) {
  Desk desk = lease_desk(LoadedState{LoadedState::Kind::kDamaged});
  desk.acquire_lease(1, "a", 7, "");
  EXPECT_THAT(desk.heard(1), ElementsAre("refused 75"));
  desk.acquire_lease(2, "a", 7, "token");
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
  desk.acquire_lease(3, "a", 7, "other");
  EXPECT_THAT(desk.heard(3), ElementsAre("refused 75"));
  EXPECT_EQ(desk.disk.token, "token");
}

TEST(LockdModelLease, AShorterExpiryCountsWhenTheHolderHasHeardOfIt) {
  constexpr milliseconds kLonger = 3 * kWindow;
  Desk desk = lease_desk(leased_by_a(kLonger));
  desk.acquire_lease(1, "a", 7);
  EXPECT_THAT(desk.heard(1), ElementsAre("granted 7"));
  EXPECT_EQ(desk.model.expiry_of(1), kLonger);
  desk.beat(1);
  EXPECT_EQ(desk.model.expiry_of(1), kLonger);
  EXPECT_EQ(desk.disk.expiry, kLonger);
  // The answer was lost, and is sent again.
  desk.close(1);
  desk.acquire_lease(2, "a", 7);
  desk.beat(2);
  EXPECT_EQ(desk.model.expiry_of(2), kLonger);
  desk.end_lifeline(1);
  EXPECT_EQ(desk.disk.expiry, kLonger);
  desk.beat(2);
  EXPECT_EQ(desk.model.expiry_of(2), kExpiry);
  EXPECT_EQ(desk.disk.expiry, kExpiry);
  desk.acquire_lease(3, "a", 7);
  EXPECT_EQ(desk.model.expiry_of(3), kExpiry);
}

TEST(LockdModelLease, AShorterExpiryIsNotRecordedBeforeAllAreBack) {
  LoadedState loaded = leased_by_a(2 * kWindow);
  loaded.state.connections = 2;
  Desk desk = lease_desk(loaded);
  desk.acquire_lease(1, "a", 7);
  desk.beat(1);
  desk.beat(1);
  EXPECT_EQ(desk.disk.expiry, 2 * kWindow);
  desk.pass(2 * kWindow);
  EXPECT_EQ(desk.disk.expiry, kExpiry);
}

TEST(LockdModelLease, ALongerExpiryIsOnFileBeforeItIsTold) {
  Desk desk = lease_desk(leased_by_a(kExpiry / 2));
  desk.slow_disk = true;
  desk.acquire_lease(1, "a", 7);
  EXPECT_THAT(desk.heard(1), IsEmpty());
  desk.beat(1);
  desk.fail_record();
  EXPECT_THAT(desk.heard(1), testing::Each("waiting for a"));
  desk.pass(kRecordRetryInterval);
  desk.finish_record();
  EXPECT_EQ(desk.disk.expiry, kExpiry);
  EXPECT_EQ(desk.heard(1).back(), "granted 7");
}

TEST(LockdModelLease, TheEndOfAHoldersConnectionIsNotTheEndOfItsLease) {
  Desk desk = lease_desk();
  desk.acquire_lease(1, "a");
  desk.acquire_lease(2, "b");
  EXPECT_THAT(desk.heard(1), ElementsAre("granted 7"));
  desk.close(1);
  EXPECT_EQ(desk.model.phase(), kHeld);
  EXPECT_THAT(desk.status().connections,
              ElementsAre(StatusAnswer::Connection{std::nullopt, false}));
  desk.end_lifeline(1);
  EXPECT_EQ(desk.heard(2).back(), "granted 8");
}

TEST(LockdModelLease, TheEndOfAWaitersConnectionIsTheEndOfItsPlace) {
  Desk desk = lease_desk();
  desk.acquire_lease(1, "a");
  desk.acquire_lease(2, "b");
  desk.close(2);
  EXPECT_TRUE(desk.status().waiters.empty());
  desk.expire(1);
  EXPECT_EQ(desk.model.phase(), kFree);
}

TEST(LockdModelLease, WhoeverLeavesBeforeItIsToldNeverHadIt) {
  Desk desk = lease_desk();
  desk.slow_disk = true;
  desk.acquire_lease(1, "a");
  desk.acquire_lease(2, "b");
  desk.close(1);
  desk.finish_record();
  desk.finish_record();
  EXPECT_EQ(desk.heard(2).back(), "granted 8");
}

TEST(LockdModelLease, AClaimOutlivesTheConnectionBefore) {
  Desk desk = lease_desk();
  desk.acquire_lease(1, "a");
  desk.acquire_lease(2, "b");
  desk.acquire_lease(3, "a", 7);
  EXPECT_THAT(desk.heard(3), ElementsAre("granted 7"));
  desk.expire(1);
  EXPECT_EQ(desk.model.phase(), kHeld);
  EXPECT_EQ(desk.status().holder, "a");
  desk.expire(3);
  EXPECT_EQ(desk.heard(2).back(), "granted 8");
  desk.acquire_lease(4, "a", 7);
  EXPECT_THAT(desk.heard(4), ElementsAre("refused 75"));
}

// Two machines with the same id by mistake must not both be active.
TEST(LockdModelLease, AnIdAloneJoinsNoneAndIsJoinedByNone) {
  Desk desk = lease_desk();
  desk.acquire_lease(1, "a");
  desk.acquire_lease(2, "a");
  desk.acquire(3, "a", std::nullopt, kNew);
  EXPECT_THAT(desk.heard(2), ElementsAre("waiting for a"));
  EXPECT_THAT(desk.heard(3), ElementsAre("waiting for a"));
  desk.expire(1);
  EXPECT_EQ(desk.heard(2).back(), "granted 8");
  desk.expire(2);
  EXPECT_EQ(desk.heard(3).back(), "granted 9");
  desk.acquire_lease(4, "a");
  EXPECT_THAT(desk.heard(4), ElementsAre("waiting for a"));
}

TEST(LockdModelLease, OneHolderThatComesBackTwiceIsCountedOnce) {
  LoadedState loaded = leased_by_a();
  loaded.state.connections = 2;
  Desk desk = lease_desk(loaded);
  desk.acquire_lease(1, "a", 7);
  desk.acquire_lease(2, "a", 7);
  desk.acquire_lease(3, "b");
  desk.expire(1);
  desk.expire(2);
  // The other rank has the rest of the window.
  EXPECT_EQ(desk.model.phase(), kRecovering);
  EXPECT_THAT(desk.heard(3), ElementsAre("waiting for a"));
  desk.pass(kWindow);
  EXPECT_EQ(desk.heard(3).back(), "granted 8");
}

TEST(LockdModelLease, ARecordedExpiryIsOutwaited) {
  LoadedState loaded = held_by_a({});
  loaded.state.expiry = 2 * kWindow;
  for (const bool gives_leases : {true, false}) {
    Desk desk(loaded, {}, kStart, gives_leases ? std::optional(kExpiry) : std::nullopt);
    desk.acquire(1, "b");
    desk.pass(2 * kWindow - milliseconds(1));
    EXPECT_EQ(desk.model.phase(), kRecovering);
    desk.pass(milliseconds(1));
    EXPECT_EQ(desk.heard(1).back(), "granted 8");
  }
}

TEST(LockdModelLease, TheExpiryIsRecordedWithTheHolder) {
  Desk desk = lease_desk();
  desk.acquire_lease(1, "a");
  EXPECT_EQ(desk.disk.expiry, kExpiry);
  desk.expire(1);
  EXPECT_EQ(desk.disk.expiry, std::nullopt);
}

TEST(LockdModelLease, WithoutAStateFileTheLeasesOfBeforeAreOutwaited) {
  Desk desk = lease_desk(LoadedState{});
  desk.acquire_lease(1, "b");
  EXPECT_THAT(desk.heard(1), ElementsAre("waiting for nobody"));
  desk.acquire_lease(2, "a", 7);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
  Desk other = lease_desk(LoadedState{});
  other.acquire_lease(1, "b");
  other.pass(kWindow);
  ASSERT_EQ(other.heard(1).back().substr(0, 9), "granted 1");
  EXPECT_GT(other.status().generation, 1795000000000U);
}

}  // namespace
}  // namespace fo::lock
