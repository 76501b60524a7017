// The parent's side of a vault, against servers that die in the middle or are out of their minds;
// and the pure parts of surviving a crash.
#include "gms/vault.h"

#include <gmock/gmock.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/error.h"
#include "gms/crash_history.h"
#include "gms/gms_process.h"
#include "gms/layout_record.h"
#include "os/fd_passing.h"

namespace fo::gms {
namespace {

using Kind = VaultPacket::Kind;

class VaultTest : public testing::Test {
 protected:
  void SetUp() override {
    fds_before_ = fd_count(::getpid());
    vault_.emplace(room_);
    server_ = vault_->open();
  }
  void TearDown() override {
    server_.reset();
    vault_.reset();
    EXPECT_EQ(room_.used, 0u);
    EXPECT_EQ(fd_count(::getpid()), fds_before_);
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

  // nullopt: the vault has hung up.
  std::optional<VaultPacket> ask(Kind kind, std::uint64_t count = 0, std::size_t fds = 0) {
    send(kind, count, fds);
    vault_->serve();
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

  std::size_t fds_before_ = 0;
  VaultRoom room_{300, 0};
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
  EXPECT_EQ(ask(Kind::kBegin, 0, 1)->kind, Kind::kDone);  // in place of the half one
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

TEST(CrashHistory, WaitsLongerEachTimeAndGivesUp) {
  CrashHistory history;
  auto now = CrashHistory::TimePoint{} + std::chrono::hours(1);
  base::Duration before = base::Duration(-1);
  for (std::size_t crash = 1; crash < CrashHistory::kTooMany; ++crash) {
    const auto pause = history.add(now);
    ASSERT_TRUE(pause);
    if (crash == 1) {
      EXPECT_EQ(*pause, base::Duration::zero());
    }
    EXPECT_GT(*pause, before);
    EXPECT_LE(*pause, std::chrono::seconds(10));
    before = *pause;
    now += std::chrono::milliseconds(1);
  }
  EXPECT_EQ(history.add(now), std::nullopt);
}

TEST(CrashHistory, OldCrashesAreForgotten) {
  CrashHistory history;
  auto now = CrashHistory::TimePoint{} + std::chrono::hours(1);
  for (int crash = 0; crash < 100; ++crash) {
    EXPECT_EQ(history.add(now), base::Duration::zero());
    now += CrashHistory::kWindow;
  }
}

Layout some_layout() {
  Layout layout;
  layout.add("a", 5, 16, "t");
  layout.add("b", 16, 16, "u");
  layout.add("c", 16, 16, "u");
  layout.remove("b");
  layout.remove("c");
  layout.add("d", 1, 16, "");
  layout.put("k", "a", 3, std::string("\0v", 2));
  layout.remove("d");
  return layout;
}

TEST(LayoutRecord, KeepsAllThereIs) {
  const Layout layout = some_layout();
  for (const bool published : {false, true}) {
    LayoutRecord record = decode_record(encode_record(layout, layout_hash(layout), published));
    EXPECT_EQ(record.layout.allocations(), layout.allocations());
    EXPECT_EQ(record.layout.metadata(), layout.metadata());
    EXPECT_EQ(record.hash, layout_hash(layout));
    EXPECT_EQ(record.published, published);
    EXPECT_EQ(record.layout.add("e", 1, 16, "").layout_slot, 4u);
  }
}

TEST(LayoutRecord, NoTruncationAndNoOtherHashIsTaken) {
  const Layout layout = some_layout();
  const std::string bytes = encode_record(layout, layout_hash(layout), true);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(decode_record(bytes.substr(0, size)), base::Error) << size;
  }
  EXPECT_THROW(decode_record(bytes + "x"), base::Error);
  EXPECT_THROW(decode_record(encode_record(layout, std::string(64, '0'), true)), base::Error);
}

}  // namespace
}  // namespace fo::gms
