#include "gms/protocol/server_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace fo::gms {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A model with clients that stay connected until the test disconnects them.
class Clients {
 public:
  SessionId enqueue(LockType type) { return model.enqueue(type); }

  /// Grants everything that can be granted; returns the sessions in order.
  std::vector<SessionId> pump() {
    std::vector<SessionId> granted;
    while (const auto next =
               model.grant_next([this](SessionId id) { return !dead.contains(id); })) {
      granted.push_back(next->session);
    }
    return granted;
  }

  /// The new client must be granted the lock at once.
  SessionId enter(LockType type) {
    const SessionId id = enqueue(type);
    EXPECT_THAT(pump(), ElementsAre(id));
    return id;
  }

  void disconnect(SessionId id) {
    model.disconnect(id);
    pump();
  }

  SessionId write(int allocations) {
    const SessionId writer = enter(LockType::kRw);
    for (int i = 0; i < allocations; ++i) {
      model.layout().add(AllocationId("id" + std::to_string(i)), 1, 2, "t");
    }
    return writer;
  }

  void publish(int allocations) {
    write(allocations);
    model.publish(layout_hash(model.layout()));
    pump();
  }

  std::vector<std::string> history() const {
    std::vector<std::string> lines;
    for (const Event& event : model.events()) {
      lines.push_back(event.kind + " " + std::to_string(event.allocation_count));
    }
    return lines;
  }

  ServerModel model;
  std::set<SessionId> dead;
};

// The states that a client can find, and how to reach them.
enum class Situation {
  kEmpty,
  kWriting,
  kSealedHeld,
  kSealed,
  kPublished,
  kRead,
  kReadWriterWaits
};

SessionId arrange(Clients& clients, Situation situation) {
  switch (situation) {
    case Situation::kEmpty:
      return 0;
    case Situation::kWriting:
      return clients.write(2);
    case Situation::kSealedHeld: {
      const SessionId writer = clients.write(2);
      clients.model.seal(layout_hash(clients.model.layout()));
      return writer;
    }
    case Situation::kSealed:
      clients.disconnect(arrange(clients, Situation::kSealedHeld));
      return 0;
    case Situation::kPublished:
      clients.publish(2);
      return 0;
    case Situation::kRead:
      clients.publish(2);
      return clients.enter(LockType::kRo);
    case Situation::kReadWriterWaits: {
      clients.publish(2);
      const SessionId reader = clients.enter(LockType::kRo);
      clients.enqueue(LockType::kRw);
      clients.pump();
      return reader;
    }
  }
  return 0;
}

struct GrantCase {
  Situation situation;
  ServerState state;
  // The immediate grant for each lock type: rw, ro, rw_or_ro, rw_data_or_rw.
  std::array<std::optional<Grant>, 4> grants;
};

class GrantTable : public testing::TestWithParam<GrantCase> {};

TEST_P(GrantTable, EveryLockTypeInEveryState) {
  constexpr std::array kTypes{LockType::kRw, LockType::kRo, LockType::kRwOrRo,
                              LockType::kRwDataOrRw};
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    Clients clients;
    arrange(clients, GetParam().situation);
    EXPECT_EQ(clients.model.state(), GetParam().state);
    const SessionId id = clients.enqueue(kTypes[i]);
    clients.pump();
    EXPECT_EQ(clients.model.grant_of(id), GetParam().grants[i]) << to_string(kTypes[i]);
  }
}

constexpr std::optional<Grant> kWait;
INSTANTIATE_TEST_SUITE_P(
    ServerModel, GrantTable,
    testing::Values(
        GrantCase{
            Situation::kEmpty, ServerState::kEmpty, {Grant::kRw, kWait, Grant::kRw, Grant::kRw}},
        GrantCase{Situation::kWriting, ServerState::kRw, {kWait, kWait, kWait, kWait}},
        GrantCase{Situation::kSealedHeld, ServerState::kRw, {kWait, kWait, kWait, kWait}},
        GrantCase{Situation::kSealed,
                  ServerState::kLayoutCommitted,
                  {Grant::kRw, kWait, Grant::kRw, Grant::kRwData}},
        GrantCase{Situation::kPublished,
                  ServerState::kCommitted,
                  {Grant::kRw, Grant::kRo, Grant::kRo, Grant::kRw}},
        GrantCase{Situation::kRead, ServerState::kRo, {kWait, Grant::kRo, Grant::kRo, kWait}},
        GrantCase{Situation::kReadWriterWaits, ServerState::kRo, {kWait, kWait, kWait, kWait}}));

struct LeaveCase {
  Situation situation;
  ServerState after;
  std::size_t allocations;
};

class LeaveTable : public testing::TestWithParam<LeaveCase> {};

TEST_P(LeaveTable, WhoLeavesInEveryState) {
  Clients clients;
  const SessionId id = arrange(clients, GetParam().situation);
  clients.disconnect(id);
  EXPECT_EQ(clients.model.state(), GetParam().after);
  EXPECT_EQ(clients.model.layout().allocations().size(), GetParam().allocations);
}

INSTANTIATE_TEST_SUITE_P(
    ServerModel, LeaveTable,
    testing::Values(LeaveCase{Situation::kEmpty, ServerState::kEmpty, 0},
                    LeaveCase{Situation::kWriting, ServerState::kEmpty, 0},
                    LeaveCase{Situation::kSealedHeld, ServerState::kLayoutCommitted, 2},
                    LeaveCase{Situation::kSealed, ServerState::kLayoutCommitted, 2},
                    LeaveCase{Situation::kPublished, ServerState::kCommitted, 2},
                    LeaveCase{Situation::kRead, ServerState::kCommitted, 2},
                    // The waiting writer is granted the lock and drops the layout.
                    LeaveCase{Situation::kReadWriterWaits, ServerState::kRw, 0}));

TEST(ServerModel, HistoryOfAPublicationAndItsReplacement) {
  Clients clients;
  clients.publish(3);
  clients.enter(LockType::kRw);
  EXPECT_THAT(clients.history(), ElementsAre("rw_connected 0", "committed 0",
                                             "allocations_cleared 3", "rw_connected 0"));
}

TEST(ServerModel, HistoryOfAnAbort) {
  Clients clients;
  clients.disconnect(clients.write(2));
  EXPECT_THAT(clients.history(),
              ElementsAre("rw_connected 0", "rw_aborted 0", "allocations_cleared 2"));
  EXPECT_EQ(clients.model.hash(), LayoutHash());
}

TEST(ServerModel, HistoryOfASealAndAnAdoption) {
  Clients clients;
  const SessionId writer = clients.write(2);
  clients.model.seal(layout_hash(clients.model.layout()));
  EXPECT_EQ(clients.model.grant_of(writer), Grant::kRwData);
  const LayoutHash hash = clients.model.hash();
  EXPECT_NE(hash, LayoutHash());
  clients.disconnect(writer);
  const SessionId adopter = clients.enter(LockType::kRwDataOrRw);
  EXPECT_EQ(clients.model.grant_of(adopter), Grant::kRwData);
  EXPECT_EQ(clients.model.hash(), hash);
  EXPECT_FALSE(clients.model.published());
  EXPECT_THAT(clients.history(), ElementsAre("rw_connected 0", "layout_committed 2",
                                             "rw_disconnected 2", "rw_connected 0"));
}

TEST(ServerModel, SealedLayoutThatIsReplacedLeavesNoEventOfItsOwn) {
  Clients clients;
  arrange(clients, Situation::kSealed);
  clients.enter(LockType::kRw);
  EXPECT_THAT(clients.history(), ElementsAre("rw_connected 0", "layout_committed 2",
                                             "rw_disconnected 2", "rw_connected 0"));
  EXPECT_EQ(clients.model.hash(), LayoutHash());
  EXPECT_TRUE(clients.model.layout().allocations().empty());
}

TEST(ServerModel, DeadWaitingWriterIsNeverGrantedAndWipesNothing) {
  Clients clients;
  clients.publish(2);
  const SessionId reader = clients.enter(LockType::kRo);
  const SessionId writer = clients.enqueue(LockType::kRw);
  EXPECT_THAT(clients.pump(), IsEmpty());
  clients.dead.insert(writer);
  const SessionId second_reader = clients.enqueue(LockType::kRo);
  clients.disconnect(reader);
  EXPECT_EQ(clients.model.grant_of(writer), std::nullopt);
  EXPECT_EQ(clients.model.grant_of(second_reader), Grant::kRo);
  EXPECT_EQ(clients.model.layout().allocations().size(), 2u);
  EXPECT_TRUE(clients.model.published());
}

TEST(ServerModel, ReadersThatAWaitingWriterKeptOutComeInWhenItGivesUp) {
  Clients clients;
  clients.publish(1);
  clients.enter(LockType::kRo);
  const SessionId writer = clients.enqueue(LockType::kRw);
  const SessionId reader = clients.enqueue(LockType::kRo);
  EXPECT_THAT(clients.pump(), IsEmpty());
  EXPECT_EQ(clients.model.lock_state().waiting_writers, 1);
  clients.disconnect(writer);
  EXPECT_EQ(clients.model.grant_of(reader), Grant::kRo);
  EXPECT_EQ(clients.model.lock_state().waiting_writers, 0);
}

TEST(ServerModel, WritersTakeTurnsInTheOrderOfArrival) {
  Clients clients;
  const SessionId first = clients.enter(LockType::kRw);
  const SessionId second = clients.enqueue(LockType::kRw);
  const SessionId third = clients.enqueue(LockType::kRwOrRo);
  EXPECT_THAT(clients.pump(), IsEmpty());
  clients.model.disconnect(first);
  EXPECT_THAT(clients.pump(), ElementsAre(second));
  clients.model.disconnect(second);
  EXPECT_THAT(clients.pump(), ElementsAre(third));
}

TEST(ServerModel, PublishingAdmitsEveryReaderThatWaits) {
  Clients clients;
  clients.write(1);
  const SessionId one = clients.enqueue(LockType::kRo);
  const SessionId other = clients.enqueue(LockType::kRwOrRo);
  EXPECT_THAT(clients.pump(), IsEmpty());
  clients.model.publish(layout_hash(clients.model.layout()));
  EXPECT_THAT(clients.pump(), ElementsAre(one, other));
  EXPECT_EQ(clients.model.grant_of(other), Grant::kRo);
}

TEST(ServerModel, EventHistoryKeepsTheNewest) {
  ServerModel model;
  for (std::size_t i = 0; i < kMaxEvents + 10; ++i) model.add_event("e", i);
  EXPECT_EQ(model.events().size(), kMaxEvents);
  EXPECT_EQ(model.events().front().allocation_count, 10);
}

TEST(ServerModel, LockStateTellsWhatIsSo) {
  Clients clients;
  arrange(clients, Situation::kReadWriterWaits);
  const GetLockStateResponse state = clients.model.lock_state();
  EXPECT_EQ(state.state, "RO");
  EXPECT_FALSE(state.has_rw_session);
  EXPECT_EQ(state.ro_session_count, 1);
  EXPECT_EQ(state.waiting_writers, 1);
  EXPECT_TRUE(state.committed);
  EXPECT_TRUE(state.is_ready);
  EXPECT_TRUE(state.layout_committed);
  const GetRuntimeStateResponse runtime = clients.model.runtime_state();
  EXPECT_EQ(runtime.allocation_count, 2);
  EXPECT_EQ(runtime.memory_layout_hash, clients.model.hash());
  EXPECT_EQ(runtime.allocated_bytes,
            static_cast<std::int64_t>(std::as_const(clients.model).layout().bytes()));
  EXPECT_EQ(runtime.released_bytes, 0);
}

TEST(ServerModel, WhatADroppedLayoutTookIsRemembered) {
  ServerModel model;
  const auto alive = [](SessionId) { return true; };
  const auto write = [&](base::ByteCount size) {
    const SessionId writer = model.enqueue(LockType::kRw);
    ASSERT_TRUE(model.grant_next(alive));
    const AllocationId id("id");
    if (size > 0) model.layout().add(id, 1, size, "t");
    EXPECT_EQ(model.runtime_state().allocated_bytes, static_cast<std::int64_t>(size));
    model.disconnect(writer);
    EXPECT_EQ(model.runtime_state().allocated_bytes, 0);
  };
  EXPECT_EQ(model.runtime_state().released_bytes, 0);
  write(4096);
  EXPECT_EQ(model.runtime_state().released_bytes, 4096);
  write(0);
  EXPECT_EQ(model.runtime_state().released_bytes, 4096) << "of the last that had any";
  write(8192);
  EXPECT_EQ(model.runtime_state().released_bytes, 8192);
}

}  // namespace
}  // namespace fo::gms
