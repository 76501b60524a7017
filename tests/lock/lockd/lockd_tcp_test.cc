// The lock server over TCP on a real port, with clients whose messages the test chooses.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <filesystem>
#include <functional>
#include <map>
#include <source_location>
#include <utility>

#include "base/boot_clock.h"
#include "lock/lockd.h"
#include "lock/lockd/lockd_protocol.h"
#include "lock/lockd/lockd_state.h"
#include "lock/lockd/wire.h"
#include "net/address.h"
#include "os/socket/unix_socket.h"
#include "support/await.h"
#include "support/ports.h"
#include "support/soon.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

using base::BootClock;
using base::Deadline;
using base::UniqueFd;
using std::chrono::milliseconds;
using test::Lockd;
using test::TempDir;

constexpr milliseconds kClientExpiry{1000};

using fo::test::soon;

UniqueFd connect_tcp(const std::string& address, const char* from = "127.0.0.1") {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own = test::loopback(0);
  ::inet_pton(AF_INET, from, &own.sin_addr);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) {
    throw std::runtime_error("bind");
  }
  if (test::try_connect(fd.get(), net::parse_address(address).port) != 0) {
    throw std::runtime_error("connect");
  }
  return fd;
}

// Tokens of the grants, by generation.
std::map<std::uint64_t, std::string> tokens;

class TcpClient final : public test::LockdClient {
 public:
  using LockdClient::LockdClient;

  void beat() { ask(HeartbeatRequest{++sequence_}); }

  // The next answer that is not to a heartbeat; sends a heartbeat whenever there is none for a
  // while. nullopt if the server closed the connection.
  std::optional<LockdAnswer> receive() override { return receive(true); }
  std::optional<LockdAnswer> receive(bool beats) {
    const auto beat_if_wanted = [&] {
      if (beats) send(encode_request(HeartbeatRequest{++sequence_}));
    };
    while (const auto line = read_line(beat_if_wanted)) {
      const LockdAnswer answer = decode_answer(*line);
      const auto* granted = std::get_if<GrantedAnswer>(&answer);
      if (granted != nullptr) tokens[granted->generation] = granted->token;
      const auto* heartbeat = std::get_if<HeartbeatAnswer>(&answer);
      if (heartbeat == nullptr) return answer;
      answered_ = heartbeat->sequence;
    }
    return std::nullopt;
  }
  std::string hear_word(bool beats = true) {
    const auto answer = receive(beats);
    return answer ? test::word_of(*answer) : "";
  }
  // Waits for the answer to a heartbeat: the server has processed everything sent before it.
  void settle() {
    beat();
    while (answered_ != sequence_) {
      answered_ = std::get<HeartbeatAnswer>(decode_answer(read_line().value())).sequence;
    }
  }
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

 private:
  // Heartbeats of a flood have lower numbers.
  std::uint64_t sequence_ = 1000;
  std::uint64_t answered_ = 0;
};

class LockdTcp : public testing::Test {
 protected:
  void start(const std::string& expiry = "1s") { lockd_ = Lockd::over_tcp(socket_, expiry); }

  [[nodiscard]] TcpClient connect() const { return TcpClient(connect_tcp(lockd_->address())); }
  [[nodiscard]] TcpClient acquire(const std::string& id,
                                  std::optional<std::uint64_t> claim = std::nullopt) const {
    TcpClient client = connect();
    client.ask(AcquireRequest{id, claim, claim ? tokens[*claim] : ""});
    return client;
  }
  // The same, and expects this first answer.
  [[nodiscard]] TcpClient answered(
      const std::string& word, const std::string& id,
      std::optional<std::uint64_t> claim = std::nullopt,
      const std::source_location& at = std::source_location::current()) const {
    TcpClient client = acquire(id, claim);
    EXPECT_EQ(client.hear_word(), word) << "line " << at.line();
    return client;
  }
  // Starts the server; the client holds the lock as "a".
  TcpClient start_held() {
    start();
    return answered("granted 1", "a");
  }
  [[nodiscard]] StatusAnswer status() const {
    TcpClient client(os::connect_unix(socket_, soon()));
    client.ask(StatusRequest{});
    return std::get<StatusAnswer>(client.receive(false).value());
  }
  void expect_soon(const std::function<bool(const StatusAnswer&)>& wanted) const {
    test::await([&] { return wanted(status()); });
  }
  [[nodiscard]] std::string state_path() const { return socket_ + ".state"; }

  TempDir dir_;
  std::string socket_ = dir_.path("s");
  std::unique_ptr<Lockd> lockd_;
};

TEST_F(LockdTcp, AHeartbeatIsAnsweredWithItsNumberAndTheExpiry) {
  TcpClient holder = start_held();
  TcpClient raw = acquire("b");
  raw.ask(HeartbeatRequest{41});
  ASSERT_TRUE(raw.read_line());
  const auto second = raw.read_line();
  ASSERT_TRUE(second);
  EXPECT_EQ(decode_answer(*second), LockdAnswer(HeartbeatAnswer{41, kClientExpiry}));
}

TEST_F(LockdTcp, ASilentHolderExpiresAndNotBeforeItsTime) {
  TcpClient holder = start_held();
  const auto last = BootClock::now();
  holder.beat();
  TcpClient waiter = acquire("b");
  EXPECT_EQ(waiter.read_verdict(), "granted 2");
  EXPECT_GE(BootClock::now() - last, kClientExpiry);
  EXPECT_EQ(holder.hear_word(false), "");
  TcpClient late = answered("refused 75", "a", 1);
  EXPECT_EQ(late.hear_word(), "");
}

TEST_F(LockdTcp, TheEndOfAHoldersConnectionSaysNothing) {
  start();
  for (std::uint64_t i = 0; i < 2; ++i) {
    TcpClient holder = acquire("a");
    EXPECT_EQ(holder.read_verdict(), "granted " + std::to_string(2 * i + 1));
    const auto last = BootClock::now();
    holder.beat();
    i == 0 ? holder.close() : holder.reset();
    expect_soon([](const StatusAnswer& now) {
      return now.connections.size() == 1 && !now.connections[0].connected;
    });
    TcpClient waiter = acquire("b");
    // A client with the holder's id is queued after it, because the holder's process may still run.
    TcpClient namesake = acquire("a");
    EXPECT_EQ(waiter.read_verdict(), "granted " + std::to_string(2 * i + 2));
    EXPECT_GE(BootClock::now() - last, kClientExpiry);
    namesake.close();
    waiter.ask(ReleaseRequest{});
    EXPECT_EQ(waiter.hear_word(), "");
  }
}

TEST_F(LockdTcp, AHolderThatIsHeardHoldsAndItsWaitersWait) {
  TcpClient holder = start_held();
  TcpClient waiter = answered("waiting for a", "b");
  const Deadline enough = Deadline::after(3 * kClientExpiry);
  while (!enough.expired()) {
    holder.settle();
    waiter.settle();
  }
  EXPECT_EQ(status().holder, "a");
  EXPECT_EQ(status().waiters.size(), 1U);
  EXPECT_EQ(status().connections[0].pid, std::nullopt);
}

TEST_F(LockdTcp, AWaiterLeavesTheQueueWithItsConnectionAndWhenItIsSilent) {
  start();
  TcpClient holder(os::connect_unix(socket_, soon()));
  holder.ask(AcquireRequest{"a"});
  EXPECT_EQ(holder.hear_word(false), "granted 1");
  TcpClient waiter = answered("waiting for a", "b");
  waiter.close();
  expect_soon([](const StatusAnswer& now) { return now.waiters.empty(); });
  TcpClient silent = acquire("c");
  EXPECT_EQ(silent.hear_word(false), "waiting for a");
  EXPECT_EQ(silent.hear_word(false), "");
  EXPECT_TRUE(status().waiters.empty());
}

TEST_F(LockdTcp, AReleaseHandsOverAtOnceAndClosesTheConnection) {
  start("1m");
  TcpClient holder = answered("granted 1", "a");
  TcpClient waiter = answered("waiting for a", "b");
  holder.ask(ReleaseRequest{});
  EXPECT_EQ(holder.hear_word(false), "");
  EXPECT_EQ(waiter.hear_word(), "granted 2");
  TcpClient next = answered("waiting for b", "c");
  next.ask(ReleaseRequest{});
  EXPECT_EQ(next.hear_word(false), "");
  EXPECT_TRUE(status().waiters.empty());
  EXPECT_EQ(status().holder, "b");
}

TEST_F(LockdTcp, AClaimEndsWhatIsLeftOfClosedConnections) {
  start("1m");
  TcpClient holder = answered("granted 1", "a");
  for (int i = 0; i < 20; ++i) {
    holder.close();
    expect_soon([](const StatusAnswer& now) { return !now.connections.back().connected; });
    holder = answered("granted 1", "a", 1);
    EXPECT_EQ(status().connections.size(), 1U);
  }
}

TEST_F(LockdTcp, AReleaseIsTheEndOfAllConnectionsOfTheHolder) {
  start("1m");
  TcpClient first = answered("granted 1", "a");
  TcpClient closed = answered("granted 1", "a", 1);
  closed.close();
  TcpClient waiter = answered("waiting for a", "b");
  TcpClient namesake = answered("waiting for a", "a");
  // The claim and its release arrive together.
  TcpClient last = connect();
  last.send(encode_request(AcquireRequest{"a", 1, tokens[1]}) + encode_request(ReleaseRequest{}));
  EXPECT_EQ(waiter.hear_word(), "granted 2");
  EXPECT_EQ(first.hear_word(false), "");
  EXPECT_EQ(namesake.hear_word(), "waiting for b");
}

TEST_F(LockdTcp, AWaiterOfTheHoldersNameGivesUpItsOwnPlaceOnly) {
  start("1m");
  TcpClient holder = answered("granted 1", "a");
  TcpClient namesake = answered("waiting for a", "a");
  namesake.ask(ReleaseRequest{});
  EXPECT_EQ(namesake.hear_word(false), "");
  holder.settle();
  EXPECT_EQ(status().holder, "a");
}

// --- a new server

TEST_F(LockdTcp, ANewServerOutwaitsTheLeases) {
  TcpClient holder = start_held();
  const auto last = BootClock::now();
  holder.beat();
  EXPECT_EQ(lockd_->signal(SIGKILL), 128 + SIGKILL);
  lockd_->start();
  TcpClient waiter = acquire("b");
  EXPECT_EQ(waiter.read_verdict(), "granted 2");
  EXPECT_GE(BootClock::now() - last, kClientExpiry);
}

TEST_F(LockdTcp, ANewServerOutwaitsLeasesThatWereLonger) {
  LockdState state;
  state.holder = "a";
  state.granted_at = *text::parse_time("2026-11-21T05:33:00.123Z");
  state.generation = state.last_generation = 7;
  state.connections = 1;
  state.expiry = milliseconds(90000);
  state.token = tokens[7] = "0123456789abcdef0123456789abcdef";
  lockd_ = Lockd::over_tcp(socket_);
  EXPECT_EQ(lockd_->signal(SIGTERM), 0);
  test::spill(state_path(), encode_state(state));
  lockd_->start();
  EXPECT_EQ(status().reconnect_window, milliseconds(90000));
  EXPECT_GT(status().window_left, milliseconds(60000));
  TcpClient holder = answered("granted 7", "a", 7);
  // The holder may not have received the shorter expiry yet.
  holder.settle();
  EXPECT_EQ(load_state(state_path()).state.expiry, milliseconds(90000));
  const Deadline enough = Deadline::after(2 * kClientExpiry);
  while (!enough.expired()) ASSERT_EQ(status().holder, "a");
  holder.settle();
  test::await([&] { return load_state(state_path()).state.expiry == kClientExpiry; });
  test::await([&] { return !status().holder; });
}

// Waiters receive the holder's id and generation.
TEST_F(LockdTcp, AWaiterCannotClaimTheHoldersGrant) {
  start("1m");
  TcpClient holder = answered("granted 1", "a");
  const std::string token = std::exchange(tokens[1], "");
  EXPECT_TRUE(is_token(token));
  for (const std::string& guess : {std::string(), std::string(32, '0')}) {
    TcpClient thief = connect();
    thief.ask(AcquireRequest{"a", 1, guess});
    EXPECT_EQ(thief.hear_word(false), "refused 75");
    EXPECT_EQ(thief.hear_word(false), "");
  }
  EXPECT_EQ(status().connections.size(), 1U);
  // The same when the holder is only in the state file.
  EXPECT_EQ(lockd_->signal(SIGKILL), 128 + SIGKILL);
  lockd_->start();
  TcpClient thief = acquire("a", 1);
  EXPECT_EQ(thief.hear_word(false), "refused 75");
  tokens[1] = token;
  holder = answered("granted 1", "a", 1);
}

TEST_F(LockdTcp, EachGrantHasATokenOfItsOwnAndNoneOnTheSocket) {
  start("1m");
  TcpClient first = answered("granted 1", "a");
  first.ask(ReleaseRequest{});
  TcpClient second = acquire("a");
  EXPECT_EQ(second.read_verdict(), "granted 2");
  EXPECT_NE(tokens[1], tokens[2]);
  second.ask(ReleaseRequest{});
  TcpClient local(os::connect_unix(socket_, soon()));
  local.ask(AcquireRequest{"a"});
  EXPECT_EQ(local.hear_word(false), "granted 3");
  EXPECT_EQ(tokens[3], "");
  TcpClient thief = acquire("a", 3);
  EXPECT_EQ(thief.hear_word(false), "refused 75");
}

TEST_F(LockdTcp, WithoutAStateFileTheLeasesOfBeforeAreOutwaited) {
  TcpClient holder = start_held();
  const auto last = BootClock::now();
  holder.beat();
  EXPECT_EQ(lockd_->signal(SIGKILL), 128 + SIGKILL);
  std::filesystem::remove(state_path());
  lockd_->start();
  // Restart it once more, before any grant.
  EXPECT_EQ(lockd_->signal(SIGKILL), 128 + SIGKILL);
  lockd_->start();
  TcpClient waiter = acquire("b");
  const std::string word = waiter.read_verdict();
  EXPECT_GE(BootClock::now() - last, kClientExpiry);
  // The generation exceeds any that may have been granted before.
  ASSERT_TRUE(word.starts_with("granted ")) << word;
  EXPECT_GT(std::stoull(word.substr(8)), 1795000000000U);
  TcpClient late = answered("refused 75", "a", 1);
}

TEST_F(LockdTcp, WhatAHolderSaidWhileTheServerWasStoppedCounts) {
  TcpClient holder = start_held();
  TcpClient waiter(os::connect_unix(socket_, soon()));
  waiter.ask(AcquireRequest{"b"});
  EXPECT_EQ(waiter.hear_word(false), "waiting for a");
  lockd_->signal(SIGSTOP);
  const Deadline enough = Deadline::after(2 * kClientExpiry);
  while (!enough.expired()) {
    holder.beat();
    ::poll(nullptr, 0, 50);
  }
  lockd_->signal(SIGCONT);
  holder.settle();
  EXPECT_EQ(status().holder, "a");
}

// --- hostile peers

TEST_F(LockdTcp, AHeartbeatOfNobodyIsRefused) {
  start("1m");
  TcpClient client = connect();
  client.beat();
  EXPECT_EQ(client.hear_word(false), "refused 76");
  EXPECT_EQ(client.hear_word(false), "");
  TcpClient release = connect();
  release.ask(ReleaseRequest{});
  EXPECT_EQ(release.hear_word(false), "refused 76");
  TcpClient local(os::connect_unix(socket_, soon()));
  local.ask(AcquireRequest{"a"});
  EXPECT_EQ(local.hear_word(false), "granted 1");
  local.beat();
  EXPECT_EQ(local.hear_word(false), "refused 76");
  EXPECT_EQ(local.hear_word(false), "");
}

TEST_F(LockdTcp, GarbageEndsItsConnectionOnly) {
  start("10s");
  TcpClient holder = answered("granted 1", "a");
  for (const std::string& bytes :
       {std::string("\n"), std::string("GET / HTTP/1.1\r\n"), std::string("\0\0\0\n", 4),
        std::string(4096, 'x'), std::string(1 << 20, '['),
        std::string("{\"request\":\"heartbeat\",\"sequence\":-1}\n"),
        std::string("\x16\x03\x01\x02\0\x01\n", 7)}) {
    TcpClient client = connect();
    client.send(bytes);
    EXPECT_EQ(client.hear_word(false), "refused 76");
    EXPECT_EQ(client.hear_word(false), "");
  }
  TcpClient twice = acquire("b");
  twice.ask(AcquireRequest{"b"});
  EXPECT_EQ(twice.hear_word(false), "waiting for a");
  EXPECT_EQ(twice.hear_word(false), "refused 76");
  expect_soon([](const StatusAnswer& now) { return now.waiters.empty(); });
  holder.settle();
}

TEST_F(LockdTcp, AHolderThatBreaksTheProtocolKeepsItsLeaseOnly) {
  start();
  const auto last = BootClock::now();
  TcpClient holder = acquire("a");
  EXPECT_EQ(holder.hear_word(false), "granted 1");
  holder.send("nonsense\n");
  EXPECT_EQ(holder.hear_word(false), "refused 76");
  TcpClient waiter = acquire("b");
  EXPECT_EQ(waiter.read_verdict(), "granted 2");
  EXPECT_GE(BootClock::now() - last, kClientExpiry);
}

TEST_F(LockdTcp, BytesWithoutAMessageAreNoHeartbeat) {
  TcpClient holder = start_held();
  const Deadline deadline = soon();
  while (status().holder) {
    ASSERT_FALSE(deadline.expired());
    holder.send(" ");
    ::poll(nullptr, 0, 10);
  }
}

TEST_F(LockdTcp, ThousandsThatSayNothingKeepNobodyOut) {
  start("10s");
  TcpClient holder = answered("granted 1", "a");
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 900; ++i) silent.push_back(connect_tcp(lockd_->address()));
  TcpClient again = answered("granted 1", "a", 1);
  again.settle();
  const std::string folder = "/proc/" + std::to_string(lockd_->pid()) + "/fd";
  EXPECT_LT(std::distance(std::filesystem::directory_iterator(folder), {}), 200);
}

TEST_F(LockdTcp, AFloodFromOneAddressDropsNobodyOfAnother) {
  start("1m");
  TcpClient holder = answered("granted 1", "a");
  for (int i = 0; i < 20; ++i) {
    TcpClient again = connect();
    std::vector<UniqueFd> flood;
    for (int j = 0; j < 200; ++j) flood.push_back(connect_tcp(lockd_->address(), "127.0.0.2"));
    again.ask(AcquireRequest{"a", 1, tokens[1]});
    EXPECT_EQ(again.hear_word(), "granted 1");
    holder.close();
    holder = std::move(again);
  }
}

TEST_F(LockdTcp, WhoDoesNotReadItsAnswersIsDropped) {
  start("10s");
  TcpClient holder = answered("granted 1", "a");
  TcpClient deaf = acquire("b");
  std::string many;
  for (std::uint64_t i = 0; i < 1000; ++i) many += encode_request(HeartbeatRequest{i});
  const Deadline deadline = soon();
  while (deaf.send(many)) ASSERT_FALSE(deadline.expired());
  expect_soon([](const StatusAnswer& now) { return now.waiters.empty(); });
  holder.settle();
}

TEST_F(LockdTcp, AFloodOfHeartbeatsDisturbsNobody) {
  start("10s");
  TcpClient holder = answered("granted 1", "a");
  TcpClient flood = answered("waiting for a", "b");
  std::string many;
  for (std::uint64_t i = 0; i < 100; ++i) many += encode_request(HeartbeatRequest{i});
  for (int i = 0; i < 200; ++i) {
    flood.send(many);
    flood.settle();
    holder.settle();
  }
  EXPECT_EQ(status().holder, "a");
}

}  // namespace
}  // namespace fo::lock
