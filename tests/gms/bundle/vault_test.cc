// The parent's side of a vault, with servers that die in the middle or send invalid packets.
#include "gms/bundle/vault.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include "os/socket/fd_passing.h"
#include "support/fds.h"

namespace fo::gms {
namespace {

using Kind = VaultPacket::Kind;

class VaultTest : public test::FdCounting {
 protected:
  void SetUp() override {
    vault_.emplace(room_);
    server_ = vault_->open();
  }
  void TearDown() override {
    server_.reset();
    vault_.reset();
    EXPECT_EQ(room_.used, 0u);
  }

  void send(Kind kind, std::uint64_t count, std::size_t fds) {
    const VaultPacket packet{kind, count};
    std::vector<base::UniqueFd> owned;
    std::vector<int> numbers;
    for (std::size_t i = 0; i < fds; ++i) {
      owned.emplace_back(::eventfd(0, EFD_CLOEXEC));
      numbers.push_back(owned.back().get());
    }
    ASSERT_GT(os::send_with_fds(server_.get(), std::as_bytes(std::span(&packet, 1)), numbers), 0);
  }

  // nullopt: the vault has closed the connection.
  std::optional<VaultPacket> ask(Kind kind, std::uint64_t count = 0, std::size_t fds = 0) {
    send(kind, count, fds);
    vault_->serve();
    const std::vector<base::UniqueFd> dropped = vault_->take_dropped();
    dropped_ += dropped.size();
    if (kind == Kind::kDrop) vault_->answer_drop();
    return answer();
  }

  std::optional<VaultPacket> answer() {
    VaultPacket answer;
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

  VaultRoom room_{300, 0};
  // Descriptors that the vault returned for closing.
  std::size_t dropped_ = 0;
  std::optional<Vault> vault_;
  base::UniqueFd server_;
};

TEST_F(VaultTest, KeepsWhatIsWholeUntilItIsDropped) {
  EXPECT_EQ(vault_->deposit(), nullptr);
  EXPECT_TRUE(accepts(Kind::kBegin, 255, 1));
  EXPECT_TRUE(accepts(Kind::kAdd, 0, os::kMaxFdsPerMessage));
  EXPECT_TRUE(accepts(Kind::kAdd, 0, 2));
  EXPECT_EQ(vault_->deposit(), nullptr);
  EXPECT_TRUE(accepts(Kind::kKeep));
  ASSERT_NE(vault_->deposit(), nullptr);
  EXPECT_EQ(vault_->deposit()->memory.size(), 255u);
  EXPECT_EQ(room_.used, 256u);
  EXPECT_TRUE(accepts(Kind::kDrop));
  EXPECT_EQ(vault_->deposit(), nullptr);
  EXPECT_EQ(room_.used, 0u);
  EXPECT_EQ(dropped_, 255u);
}

TEST_F(VaultTest, ADropIsAnsweredOnceTheCallerSaysThatAllIsClosed) {
  EXPECT_TRUE(accepts(Kind::kBegin, 1, 1));
  EXPECT_TRUE(accepts(Kind::kAdd, 0, 1));
  EXPECT_TRUE(accepts(Kind::kKeep));
  send(Kind::kDrop, 0, 0);
  vault_->serve();
  EXPECT_FALSE(answer());
  EXPECT_EQ(vault_->take_dropped().size(), 1u);
  vault_->answer_drop();
  EXPECT_EQ(answer()->kind, Kind::kDone);
  vault_->answer_drop();
  EXPECT_FALSE(answer());
}

TEST_F(VaultTest, WhatAServerThatDiesHasSentIsTheCallersToClose) {
  EXPECT_TRUE(accepts(Kind::kBegin, 3, 1));
  EXPECT_TRUE(accepts(Kind::kAdd, 0, 2));
  // More than were announced, which ends the deposit.
  send(Kind::kAdd, 0, 2);
  server_.reset();
  vault_->serve();
  EXPECT_EQ(vault_->fd(), -1);
  EXPECT_EQ(vault_->take_dropped().size(), 4u);
}

TEST_F(VaultTest, ARequestBeforeADropIsAnsweredEndsTheConnection) {
  send(Kind::kDrop, 0, 0);
  send(Kind::kBegin, 1, 1);
  vault_->serve();
  EXPECT_EQ(vault_->fd(), -1);
  EXPECT_EQ(vault_->take_dropped().size(), 1u);
  vault_->answer_drop();
}

TEST_F(VaultTest, OneOfNothingIsOne) {
  EXPECT_TRUE(accepts(Kind::kBegin, 0, 1));
  EXPECT_TRUE(accepts(Kind::kKeep));
  EXPECT_NE(vault_->deposit(), nullptr);
}

TEST_F(VaultTest, HalfADepositChangesNothing) {
  EXPECT_TRUE(accepts(Kind::kBegin, 1, 1));
  EXPECT_TRUE(accepts(Kind::kAdd, 0, 1));
  EXPECT_TRUE(accepts(Kind::kKeep));
  EXPECT_TRUE(accepts(Kind::kBegin, 3, 1));
  EXPECT_TRUE(accepts(Kind::kAdd, 0, 2));
  server_.reset();
  vault_->serve();
  EXPECT_EQ(vault_->fd(), -1);
  ASSERT_NE(vault_->deposit(), nullptr);
  EXPECT_EQ(vault_->deposit()->memory.size(), 1u);
  EXPECT_EQ(room_.used, 2u);
  server_ = vault_->open();
  EXPECT_TRUE(accepts(Kind::kDrop));
}

TEST_F(VaultTest, WhatTheDeadHaveSentCounts) {
  send(Kind::kBegin, 1, 1);
  send(Kind::kAdd, 0, 1);
  send(Kind::kKeep, 0, 0);
  server_.reset();
  vault_->serve();
  ASSERT_NE(vault_->deposit(), nullptr);
  EXPECT_EQ(vault_->deposit()->memory.size(), 1u);
}

TEST_F(VaultTest, RefusesWhatThereIsNoRoomFor) {
  const auto answer = ask(Kind::kBegin, 300, 1);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->kind, Kind::kRefused);
  EXPECT_EQ(answer->count, 299u);
  EXPECT_TRUE(accepts(Kind::kBegin, 299, 1));
  Vault other(room_);
  EXPECT_EQ(room_.used, 300u);
  EXPECT_EQ(ask(Kind::kBegin, 0, 1)->kind, Kind::kDone);  // replaces the incomplete one
  EXPECT_EQ(room_.used, 1u);
}

TEST_F(VaultTest, HangsUpOnWhatMakesNoSense) {
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
        vault_->serve();
      },
  };
  for (const auto& one : nonsense) {
    one();
    EXPECT_EQ(vault_->fd(), -1);
    EXPECT_EQ(vault_->deposit(), nullptr);
    EXPECT_EQ(room_.used, 0u);
    server_ = vault_->open();
  }
}

}  // namespace
}  // namespace fo::gms
