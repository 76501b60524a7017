#include "lock/lockd_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace fo::lock {
namespace {

using base::ExitStatus;
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
  state.granted_at = *parse_time("2026-11-21T05:33:00.123Z");
  state.generation = state.last_generation = 7;
  state.connections = std::max<std::size_t>(processes.size(), 1);
  state.processes = std::move(processes);
  return {LoadedState::Kind::kState, state};
}

LoadedState free_after(std::uint64_t generation) {
  LockdState state;
  state.generation = state.last_generation = generation;
  return {LoadedState::Kind::kState, state};
}

// A server without sockets, whose disk does what the test says.
class Desk {
 public:
  explicit Desk(const LoadedState& loaded = {}, std::vector<RecordedProcess> running = {})
      : model(kWindow, loaded, std::move(running), now), disk(loaded.state) {
    collect();
  }

  void acquire(ConnectionId id, const std::string& engine,
               std::optional<std::uint64_t> claim = std::nullopt,
               std::optional<RecordedProcess> process = std::nullopt, bool lifeline = false) {
    model.acquire(id, {engine, claim}, process, lifeline, now);
    collect();
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
  void fail_record() {
    ASSERT_TRUE(writing);
    writing = false;
    model.recorded("the disk is full", now);
    collect();
  }
  void pass(milliseconds time) {
    now.steady += time;
    now.wall += time;
    model.tick(now);
    collect();
  }

  // What this connection was told, as words, since it was asked last.
  std::vector<std::string> heard(ConnectionId id) { return std::exchange(heard_[id], {}); }
  StatusAnswer status() const { return model.status(now); }

  LockdTime now{std::chrono::steady_clock::time_point(seconds(1000)),
                *parse_time("2026-11-21T06:00:00.000Z")};
  LockdModel model;
  /// A record is under way; with `slow_disk` until the test finishes it.
  bool writing = false;
  bool slow_disk = false;
  LockdState disk;
  int records = 0;
  std::vector<std::string> warnings;

 private:
  void collect() {
    LockdEffects effects = model.take_effects();
    for (const auto& note : effects.notes) {
      if (note.is_warning) warnings.push_back(note.text);
    }
    for (const auto& [id, answer] : effects.answers) heard_[id].push_back(word(answer));
    if (!effects.record) return;
    ASSERT_FALSE(writing) << "two records at a time";
    writing = true;
    ++records;
    pending = *effects.record;
    if (!slow_disk) finish_record();
  }
  static std::string word(const LockdAnswer& answer) {
    if (const auto* waiting = std::get_if<WaitingAnswer>(&answer)) {
      return "waiting for " + waiting->holder.value_or("nobody");
    }
    if (const auto* granted = std::get_if<GrantedAnswer>(&answer)) {
      return "granted " + std::to_string(granted->generation);
    }
    return "refused " + std::to_string(to_int(std::get<RefusedAnswer>(answer).status));
  }

  LockdState pending;
  std::map<ConnectionId, std::vector<std::string>> heard_;
};

// --- the table of the header
// ----------------------------------------------------------------------

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

// Where connection 1 is the holder's, or whom it is being recorded for, and has a lifeline.
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
      // Whoever was not told has done nothing under the grant: his lifeline does not matter.
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
// -----------------------------------------------------------------------------

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

TEST(LockdModel, WhatCannotBeRecordedIsNotGrantedAndTriedAgain) {
  Desk desk;
  desk.slow_disk = true;
  desk.acquire(1, "a");
  desk.acquire(2, "b");
  for (int i = 0; i < 3; ++i) {
    desk.fail_record();
    EXPECT_FALSE(desk.writing);
    ASSERT_EQ(desk.model.wake_at(), desk.now.steady + kRecordAgainAfter);
    desk.pass(kRecordAgainAfter - milliseconds(1));
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

TEST(LockdModel, AReleaseThatIsNotRecordedHoldsNobodyUp) {
  Desk desk;
  desk.acquire(1, "a");
  desk.slow_disk = true;
  desk.close(1);
  desk.fail_record();
  EXPECT_EQ(desk.warnings.size(), 1U);
  EXPECT_EQ(desk.model.wake_at(), std::nullopt);
  desk.acquire(2, "b");
  desk.finish_record();
  EXPECT_EQ(desk.heard(2).back(), "granted 2");
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
// ------------------------------------------------------------

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
  desk.pass(kRecordAgainAfter);
  desk.finish_record();
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 1"));
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
// ------------------------------------------------------------------------------------

TEST(LockdModel, ALifelineKeepsTheLockAfterTheConnection) {
  Desk desk;
  desk.acquire(1, "a", std::nullopt, kOld, true);
  desk.acquire(2, "b");
  EXPECT_TRUE(desk.model.closed(1, desk.now));
  EXPECT_EQ(desk.model.phase(), kHeld);
  EXPECT_THAT(desk.status().connections, ElementsAre(StatusAnswer::Connection{100, false}));
  // The same id is another process now: only open connections let others join.
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
// ---------------------------------------------------------------------------------------

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
// -------------------------------------------------------------------------------------

TEST(LockdModel, TheHolderComesBackWithItsClaimToTheSameGrant) {
  Desk desk(held_by_a());
  desk.acquire(1, "b");
  EXPECT_THAT(desk.heard(1), ElementsAre("waiting for a"));
  desk.pass(kWindow - milliseconds(1));
  EXPECT_EQ(desk.status().window_left, milliseconds(1));
  desk.claim(2, "a", 7);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
  EXPECT_EQ(desk.status().granted_at, parse_time("2026-11-21T05:33:00.123Z"));
  EXPECT_EQ(desk.status().window_left, std::nullopt);
  desk.pass(kWindow);
  EXPECT_EQ(desk.model.phase(), kHeld);
  EXPECT_THAT(desk.heard(1), IsEmpty());
}

TEST(LockdModel, ARecordedProcessComesBackWithoutAClaim) {
  Desk desk(held_by_a(), {kOld});
  desk.acquire(1, "b", std::nullopt, kOld);  // it says that it is somebody else
  EXPECT_THAT(desk.heard(1), ElementsAre("waiting for a"));
  desk.acquire(2, "a", std::nullopt, kOld);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
}

TEST(LockdModel, AHolderThatIsOnFileComesBackAlsoWhereNothingCanBeRecorded) {
  Desk desk(held_by_a({kOld, kOldWorker}), {kOld});
  desk.slow_disk = true;
  desk.acquire(1, "a", 7, kOld);
  EXPECT_THAT(desk.heard(1), ElementsAre("granted 7"));
  // Another process of the holder's is not on file.
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
  EXPECT_THAT(desk.warnings.front(), testing::HasSubstr("process 100 of 'a'"));
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
  desk.pass(kWindow + milliseconds(500));
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
  EXPECT_EQ(desk.heard(2).back(), "granted 8");
}

TEST(LockdModel, AServerThatWasStoppedItselfBeginsTheWindowAnew) {
  Desk desk(held_by_a());
  desk.acquire(1, "b");
  desk.pass(kWindow + kWindowLateness + milliseconds(1));
  EXPECT_EQ(desk.model.phase(), kRecovering);
  EXPECT_EQ(desk.status().window_left, kWindow);
  desk.claim(2, "a", 7);
  EXPECT_THAT(desk.heard(2), ElementsAre("granted 7"));
}

TEST(LockdModel, ASecondRestartFindsWhatTheFirstLeft) {
  Desk first(held_by_a({kOld, kOldWorker}), {kOld, kOldWorker});
  first.acquire(1, "a", 7, kNew);
  // Those that did not come back yet are still the holder's.
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
  desk.close(2);
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

// --- whatever happens
// -----------------------------------------------------------------------------

// Random events; the invariants are those for which there is a lock at all.
TEST(LockdModel, NeverHasTwoHoldersNorAGenerationTwice) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](unsigned count) { return random() % count; };
    Desk desk(pick(3) == 0 ? held_by_a() : LoadedState{});
    desk.slow_disk = true;
    ConnectionId next = 1;
    std::vector<ConnectionId> open;
    std::map<ConnectionId, std::string> engine;
    std::map<std::uint64_t, std::string> generations;
    std::set<ConnectionId> holds;
    for (int step = 0; step < 300; ++step) {
      switch (pick(8)) {
        case 0:
        case 1: {
          const std::string id(1, static_cast<char>('a' + pick(3)));
          std::optional<std::uint64_t> claim;
          if (pick(4) == 0) claim = 1 + pick(20);
          // Nobody claims what another was given.
          if (claim && generations.contains(*claim) && generations[*claim] != id) claim.reset();
          engine[next] = id;
          desk.acquire(next, id, claim, std::nullopt, pick(2) == 0);
          open.push_back(next++);
          break;
        }
        case 2:
        case 3:
          if (!open.empty()) {
            const ConnectionId id = open[pick(static_cast<unsigned>(open.size()))];
            std::erase(open, id);
            holds.erase(id);
            desk.close(id);
            if (pick(2) == 0) desk.end_lifeline(id);
          }
          break;
        case 4:
        case 5:
          if (desk.writing) desk.finish_record();
          break;
        case 6:
          if (desk.writing) desk.fail_record();
          break;
        default:
          desk.pass(milliseconds(pick(600)));
      }
      for (const ConnectionId id : open) {
        for (const std::string& word : desk.heard(id)) {
          if (!word.starts_with("granted ")) continue;
          const std::uint64_t generation = std::stoull(word.substr(8));
          const auto [at, is_new] = generations.emplace(generation, engine[id]);
          ASSERT_EQ(at->second, engine[id]) << "seed " << seed << " generation " << generation;
          ASSERT_EQ(desk.disk.holder, engine[id]) << "not on file";
          ASSERT_EQ(desk.disk.generation, generation);
          holds.insert(id);
        }
      }
      for (const ConnectionId id : holds) {
        ASSERT_EQ(engine[id], engine[*holds.begin()]) << "two holders with seed " << seed;
      }
    }
    // With a disk that works and time enough, everybody gets his turn.
    desk.slow_disk = false;
    if (desk.writing) desk.finish_record();
    for (int i = 0; i < 200; ++i) desk.pass(milliseconds(500));
    EXPECT_FALSE(desk.writing);
    EXPECT_TRUE(desk.model.phase() == kHeld || desk.status().waiters.empty());
  }
}

}  // namespace
}  // namespace fo::lock
