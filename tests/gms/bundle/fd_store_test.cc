// The parent's side of a descriptor store, with servers that die in the middle or send invalid
// packets.
#include "gms/bundle/fd_store.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include "os/socket/fd_passing.h"
#include "support/fds.h"

namespace fo::gms {
namespace {

using Kind = FdStorePacket::Kind;

class FdStoreTest : public test::FdCounting {
 protected:
  void SetUp() override {
    fd_store_.emplace(budget_);
    server_ = fd_store_->open();
  }
  void TearDown() override {
    server_.reset();
    fd_store_.reset();
    EXPECT_EQ(budget_.used, 0u);
  }

  void send(Kind kind, std::uint64_t count, std::size_t fds) {
    const FdStorePacket packet{kind, count};
    std::vector<base::UniqueFd> owned;
    std::vector<int> numbers;
    for (std::size_t i = 0; i < fds; ++i) {
      owned.emplace_back(::eventfd(0, EFD_CLOEXEC));
      numbers.push_back(owned.back().get());
    }
    ASSERT_GT(os::send_with_fds(server_.get(), std::as_bytes(std::span(&packet, 1)), numbers), 0);
  }

  // nullopt: the descriptor store has closed the connection.
  std::optional<FdStorePacket> ask(Kind kind, std::uint64_t count = 0, std::size_t fds = 0) {
    send(kind, count, fds);
    fd_store_->serve();
    const std::vector<base::UniqueFd> dropped = fd_store_->take_dropped();
    dropped_ += dropped.size();
    if (kind == Kind::kDrop) fd_store_->answer_drop();
    return answer();
  }

  std::optional<FdStorePacket> answer() {
    FdStorePacket answer;
    std::vector<base::UniqueFd> none;
    const auto got =
        os::receive_with_fds(server_.get(), std::as_writable_bytes(std::span(&answer, 1)), none);
    if (got != static_cast<std::ptrdiff_t>(sizeof answer)) return std::nullopt;
    return answer;
  }

  bool accepts(Kind kind, std::uint64_t count = 0, std::size_t fds = 0) {
    const auto answer = ask(kind, count, fds);
    return answer && answer->kind == Kind::kDone;
  }

  FdBudget budget_{300, 0};
  // Descriptors that the descriptor store returned for closing.
  std::size_t dropped_ = 0;
  std::optional<FdStore> fd_store_;
  base::UniqueFd server_;
};

TEST_F(FdStoreTest, KeepsWhatIsWholeUntilItIsDropped) {
  EXPECT_EQ(fd_store_->stored_layout(), nullptr);
  EXPECT_TRUE(accepts(Kind::kBegin, 255, 1));
  EXPECT_TRUE(accepts(Kind::kAdd, 0, os::kMaxFdsPerMessage));
  EXPECT_TRUE(accepts(Kind::kAdd, 0, 2));
  EXPECT_EQ(fd_store_->stored_layout(), nullptr);
  EXPECT_TRUE(accepts(Kind::kKeep));
  ASSERT_NE(fd_store_->stored_layout(), nullptr);
  EXPECT_EQ(fd_store_->stored_layout()->memory.size(), 255u);
  EXPECT_EQ(budget_.used, 256u);
  EXPECT_TRUE(accepts(Kind::kDrop));
  EXPECT_EQ(fd_store_->stored_layout(), nullptr);
  EXPECT_EQ(budget_.used, 0u);
  EXPECT_EQ(dropped_, 255u);
}

TEST_F(FdStoreTest, ADropIsAnsweredOnceTheCallerSaysThatAllIsClosed) {
  EXPECT_TRUE(accepts(Kind::kBegin, 1, 1));
  EXPECT_TRUE(accepts(Kind::kAdd, 0, 1));
  EXPECT_TRUE(accepts(Kind::kKeep));
  send(Kind::kDrop, 0, 0);
  fd_store_->serve();
  EXPECT_FALSE(answer());
  EXPECT_EQ(fd_store_->take_dropped().size(), 1u);
  fd_store_->answer_drop();
  EXPECT_EQ(answer()->kind, Kind::kDone);
  fd_store_->answer_drop();
  EXPECT_FALSE(answer());
}

TEST_F(FdStoreTest, WhatAServerThatDiesHasSentIsTheCallersToClose) {
  EXPECT_TRUE(accepts(Kind::kBegin, 3, 1));
  EXPECT_TRUE(accepts(Kind::kAdd, 0, 2));
  // More than were announced, which ends the stored layout.
  send(Kind::kAdd, 0, 2);
  server_.reset();
  fd_store_->serve();
  EXPECT_EQ(fd_store_->fd(), -1);
  EXPECT_EQ(fd_store_->take_dropped().size(), 4u);
}

TEST_F(FdStoreTest, ARequestBeforeADropIsAnsweredEndsTheConnection) {
  send(Kind::kDrop, 0, 0);
  send(Kind::kBegin, 1, 1);
  fd_store_->serve();
  EXPECT_EQ(fd_store_->fd(), -1);
  EXPECT_EQ(fd_store_->take_dropped().size(), 1u);
  fd_store_->answer_drop();
}

TEST_F(FdStoreTest, OneOfNothingIsOne) {
  EXPECT_TRUE(accepts(Kind::kBegin, 0, 1));
  EXPECT_TRUE(accepts(Kind::kKeep));
  EXPECT_NE(fd_store_->stored_layout(), nullptr);
}

TEST_F(FdStoreTest, AnIncompleteLayoutChangesNothing) {
  EXPECT_TRUE(accepts(Kind::kBegin, 1, 1));
  EXPECT_TRUE(accepts(Kind::kAdd, 0, 1));
  EXPECT_TRUE(accepts(Kind::kKeep));
  EXPECT_TRUE(accepts(Kind::kBegin, 3, 1));
  EXPECT_TRUE(accepts(Kind::kAdd, 0, 2));
  server_.reset();
  fd_store_->serve();
  EXPECT_EQ(fd_store_->fd(), -1);
  ASSERT_NE(fd_store_->stored_layout(), nullptr);
  EXPECT_EQ(fd_store_->stored_layout()->memory.size(), 1u);
  EXPECT_EQ(budget_.used, 2u);
  server_ = fd_store_->open();
  EXPECT_TRUE(accepts(Kind::kDrop));
}

TEST_F(FdStoreTest, WhatTheDeadHaveSentCounts) {
  send(Kind::kBegin, 1, 1);
  send(Kind::kAdd, 0, 1);
  send(Kind::kKeep, 0, 0);
  server_.reset();
  fd_store_->serve();
  ASSERT_NE(fd_store_->stored_layout(), nullptr);
  EXPECT_EQ(fd_store_->stored_layout()->memory.size(), 1u);
}

TEST_F(FdStoreTest, RefusesWhatThereIsNoRoomFor) {
  const auto answer = ask(Kind::kBegin, 300, 1);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->kind, Kind::kRefused);
  EXPECT_EQ(answer->count, 299u);
  EXPECT_TRUE(accepts(Kind::kBegin, 299, 1));
  FdStore other(budget_);
  EXPECT_EQ(budget_.used, 300u);
  EXPECT_EQ(ask(Kind::kBegin, 0, 1)->kind, Kind::kDone);  // replaces the incomplete one
  EXPECT_EQ(budget_.used, 1u);
}

TEST_F(FdStoreTest, HangsUpOnWhatMakesNoSense) {
  const std::vector<std::function<void()>> nonsense{
      [&] { ask(Kind::kBegin, 1, 0); },
      [&] { ask(Kind::kBegin, 1, 2); },
      [&] { ask(Kind::kAdd, 0, 1); },
      [&] { ask(Kind::kKeep); },
      [&] { ask(Kind::kDone); },
      [&] { ask(Kind{77}); },
      [&] {
        ask(Kind::kBegin, 1, 1);
        ask(Kind::kAdd, 0, 2);
      },
      [&] {
        ask(Kind::kBegin, 2, 1);
        ask(Kind::kAdd, 0, 1);
        ask(Kind::kKeep);
      },
      [&] {
        ASSERT_EQ(::send(server_.get(), "x", 1, 0), 1);
        fd_store_->serve();
      },
  };
  for (const auto& one : nonsense) {
    one();
    EXPECT_EQ(fd_store_->fd(), -1);
    EXPECT_EQ(fd_store_->stored_layout(), nullptr);
    EXPECT_EQ(budget_.used, 0u);
    server_ = fd_store_->open();
  }
}

}  // namespace
}  // namespace fo::gms
