// Clients that break the rules, do not read, ask for too much or send what nobody wants, against a
// real server: it goes on serving others, and ends with the descriptors that it had before.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <thread>

#include "gms/connection.h"
#include "gms/gms_process.h"
#include "gms/layout.h"
#include "gms/rpc_client.h"
#include "os/fd_passing.h"
#include "os/file.h"
#include "support/failure.h"
#include "support/must_run.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::ExitStatus;
using base::UniqueFd;
using test::failure_of;

constexpr base::ByteCount kGranule = 2 * base::kMiB;
constexpr uid_t kNobody = 65534;
// A sanitizer keeps what was freed, and books of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr base::ByteCount kMeasured = 8;
#else
constexpr base::ByteCount kMeasured = 1;
#endif

class HostileClient : public OneServer {
 protected:
  void serve(std::vector<std::string> options = {}) {
    ASSERT_NO_FATAL_FAILURE(start(std::move(options)));
    const std::vector<pid_t> children = children_of(server_->child().pid());
    ASSERT_EQ(children.size(), 1u);
    serving_ = children.front();
    const std::ptrdiff_t without_clients = sockets();
    publish();
    expect_served();
    const Deadline deadline = soon();
    while (sockets() != without_clients) ASSERT_FALSE(deadline.expired());
    fds_before_ = fds();
  }

  void TearDown() override {
    if (server_) {
      // Whatever the clients were, they are gone, and the server is as it was.
      const Deadline deadline = soon();
      while (fds() != fds_before_) {
        ASSERT_FALSE(deadline.expired()) << fds() << " descriptors, not " << fds_before_;
      }
      expect_served();
      EXPECT_EQ(server_->terminate(), 0);
    }
    OneServer::TearDown();
  }

  [[nodiscard]] std::size_t fds() const { return fd_count(serving_); }
  [[nodiscard]] std::ptrdiff_t sockets() const {
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(serving_) + "/fd");
    return std::count_if(begin(all), end(all), [](const auto& fd) {
      std::error_code gone;
      return std::filesystem::read_symlink(fd, gone).string().starts_with("socket:");
    });
  }
  // The most memory that the server ever had.
  [[nodiscard]] base::ByteCount peak_memory() const {
    std::ifstream status("/proc/" + std::to_string(serving_) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * base::kKiB;
    }
    ADD_FAILURE() << "no VmHWM";
    return 0;
  }

  void publish(base::ByteCount value = 0) const {
    RpcClient writer = RpcClient::connect(socket_, soon());
    ASSERT_TRUE(writer.shake_hands(LockType::kRw, soon()).grant);
    id_ = writer.allocate(kGranule, "t").allocation_id;
    writer.put_metadata("k", id_, 0, std::string(value, 'v'));
    writer.commit();
  }

  // A client that keeps the rules gets what it wants.
  void expect_served() const {
    RpcClient reader = RpcClient::connect(socket_, soon());
    ASSERT_TRUE(reader.shake_hands(LockType::kRo, soon()).grant);
    EXPECT_TRUE(reader.export_allocation(id_).valid());
    EXPECT_TRUE(reader.get_metadata("k"));
  }

  [[nodiscard]] UniqueFd dial() const { return os::connect_unix(socket_, soon()); }
  static void say(const UniqueFd& socket, std::string_view bytes) {
    os::write_all(socket.get(), bytes, "say");
  }
  // As much as the server takes now.
  static std::size_t say_some(const UniqueFd& socket, std::string_view bytes) {
    const ssize_t said =
        ::send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return said < 0 ? 0 : static_cast<std::size_t>(said);
  }
  // The body of the next frame.
  static std::string hear(const UniqueFd& socket) {
    const std::string prefix = hear_bytes(socket, kPrefixSize);
    return prefix.size() < kPrefixSize ? "" : hear_bytes(socket, read_prefix(prefix));
  }
  static std::string hear_bytes(const UniqueFd& socket, std::size_t size) {
    std::string heard(size, '\0');
    const ssize_t got = ::recv(socket.get(), heard.data(), size, MSG_WAITALL);
    heard.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return heard;
  }
  [[nodiscard]] UniqueFd enter(const std::string& lock) const {
    UniqueFd socket = dial();
    say(socket, encode_frame(HandshakeRequest{lock, std::nullopt}));
    EXPECT_TRUE(decode_message<HandshakeResponse>(hear(socket)).success);
    return socket;
  }
  // Whether the server has closed the connection, or does in time.
  static bool is_dropped(const UniqueFd& socket) {
    pollfd state{socket.get(), POLLRDHUP, 0};
    return ::poll(&state, 1, soon().poll_timeout()) == 1;
  }

  pid_t serving_ = 0;
  std::size_t fds_before_ = 0;
  mutable std::string id_;
};

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// --- What is said.

TEST_F(HostileClient, OnlyAWriterMaySendLongRequests) {
  serve();
  const std::string long_frame("\0\1\0\0", 4);  // 64 KiB will follow
  const UniqueFd stranger = dial();
  say(stranger, long_frame);
  EXPECT_TRUE(is_dropped(stranger));
  const UniqueFd reader = enter("ro");
  say(reader, long_frame);
  EXPECT_TRUE(is_dropped(reader));
  // A request of the most bytes that a short one may have is read, and refused for what it says.
  const UniqueFd other = enter("ro");
  std::string longest = encode_frame(MetadataListRequest{std::string(
      Connection::kMaxShortFrame - encode_frame(MetadataListRequest{}).size() + kPrefixSize - 2,
      'p')});
  ASSERT_EQ(longest.size(), kPrefixSize + Connection::kMaxShortFrame);
  say(other, longest);
  EXPECT_EQ(message_type(hear(other)), "metadata_list_response");
}

TEST_F(HostileClient, GarbageAtAnyMomentEndsOnlyItsConnection) {
  serve();
  std::mt19937 random(4711);
  const std::string handshake = encode_frame(HandshakeRequest{"ro", 0});
  for (int round = 0; round < 200; ++round) {
    std::string garbage(random() % 200, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    // Mostly frames that are whole, else nothing in them is looked at.
    if (round % 4 != 0)
      garbage = std::string("\0\0\0", 3) + static_cast<char>(garbage.size()) + garbage;
    const UniqueFd peer = dial();
    say(peer, (round % 2 == 0 ? handshake : "") + garbage);
    ::shutdown(peer.get(), SHUT_WR);
    EXPECT_TRUE(is_dropped(peer));
  }
}

// Claims to have more values than an int counts: the reader must not go past the message.
TEST_F(HostileClient, ListThatClaimsMoreThanThereIsEndsItsConnection) {
  serve();
  const UniqueFd reader = enter("ro");
  const std::string body("\x82\xa4type\xb0get_lock_statexx\xa1x\xdd\xfc\0\0\1", 30);
  say(reader, std::string("\0\0\0", 3) + static_cast<char>(body.size()) + body);
  EXPECT_TRUE(is_dropped(reader));
}

TEST_F(HostileClient, ClientThatAlwaysHasARequestReadyKeepsNobodyWaiting) {
  serve();
  const UniqueFd flooder = enter("ro");
  const std::string requests = repeated(encode_frame(GetLockStateRequest{}), 1000);
  std::thread reading([&] {
    char sink[65536];
    while (::recv(flooder.get(), sink, sizeof sink, 0) > 0) continue;
  });
  std::thread writing([&] {
    while (::send(flooder.get(), requests.data(), requests.size(), MSG_NOSIGNAL) > 0) continue;
  });
  for (int i = 0; i < 20; ++i) expect_served();
  ::shutdown(flooder.get(), SHUT_RDWR);
  writing.join();
  reading.join();
}

TEST_F(HostileClient, ManyWhoSayOneByteOrNothingKeepNobodyWaiting) {
  serve();
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 300; ++i) {
    idle.push_back(dial());
    if (i % 2 == 0) say(idle.back(), std::string(1, '\0'));
  }
  for (int i = 0; i < 20; ++i) expect_served();
}

// The pipelined bytes are as many as the server takes; it neither keeps more nor stops listening.
TEST_F(HostileClient, WaitingClientThatSendsWithoutEndIsForgottenWhenItGoes) {
  serve();
  const UniqueFd reader = enter("ro");
  const auto waiting_writers = [&] {
    say(reader, encode_frame(GetLockStateRequest{}));
    return decode_message<GetLockStateResponse>(hear(reader)).waiting_writers;
  };
  const Deadline deadline = soon();
  {
    const UniqueFd writer = dial();
    say(writer, encode_frame(HandshakeRequest{"rw", std::nullopt}));
    const std::string requests = repeated(encode_frame(GetLockStateRequest{}), 1000);
    for (std::size_t sent = 0; sent < (1u << 20);) {
      const std::size_t more = say_some(writer, requests);
      if (more == 0) break;
      sent += more;
    }
    while (waiting_writers() == 0) ASSERT_FALSE(deadline.expired());
  }
  while (waiting_writers() > 0) ASSERT_FALSE(deadline.expired());
  EXPECT_LT(peak_memory(), kMeasured * 64 * base::kMiB);
}

// What was sent while it waited is answered in order, whatever did not fit at first.
TEST_F(HostileClient, PipelinedRequestsOfAWaitingClientAreAllAnswered) {
  serve();
  UniqueFd reader = enter("ro");
  const UniqueFd waiting = dial();
  constexpr int kRequests = 3000;
  std::thread talking([&] {
    say(waiting, encode_frame(HandshakeRequest{"rw", std::nullopt}));
    for (int i = 0; i < kRequests; ++i) {
      say(waiting, encode_frame(MetadataGetRequest{"key " + std::to_string(i)}));
    }
    say(waiting, encode_frame(GetAllocationStateRequest{}));
  });
  say(reader, encode_frame(GetLockStateRequest{}));
  hear(reader);
  reader.reset();
  EXPECT_TRUE(decode_message<HandshakeResponse>(hear(waiting)).success);
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_FALSE(decode_message<MetadataGetResponse>(hear(waiting)).found) << i;
  }
  EXPECT_EQ(decode_message<GetAllocationStateResponse>(hear(waiting)).allocation_count, 0);
  talking.join();
  say(waiting, encode_frame(AllocateRequest{1, "t"}));
  id_ = decode_message<AllocateResponse>(hear(waiting)).allocation_id;
  say(waiting, encode_frame(MetadataPutRequest{{"k", id_, 0, {}}}) + encode_frame(CommitRequest{}));
  hear(waiting);
  EXPECT_TRUE(decode_message<CommitResponse>(hear(waiting)).success);
}

TEST_F(HostileClient, DescriptorsThatComeWithRequestsAreNotKept) {
  serve();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd end(ends[0]);
  UniqueFd other_end(ends[1]);
  {
    const UniqueFd reader = enter("ro");
    const std::string frame = encode_frame(GetLockStateRequest{});
    const std::vector<int> many(os::kMaxFdsPerMessage, other_end.get());
    for (int i = 0; i < 20; ++i) {
      ASSERT_GT(os::send_with_fds(reader.get(), std::as_bytes(std::span(frame)), many), 0);
    }
    for (int i = 0; i < 20; ++i) EXPECT_EQ(message_type(hear(reader)), "get_lock_state_response");
    EXPECT_LT(fds(), fds_before_ + 10);
  }
  other_end.reset();
  char byte = 0;
  EXPECT_EQ(::read(end.get(), &byte, 1), 0);  // every copy is gone
}

// --- What is not read.

TEST_F(HostileClient, AnswersThatNobodyReadsTakeABoundedAmountOfMemory) {
  serve();
  publish(kMaxMetadataValue);
  std::vector<UniqueFd> sleepers;
  for (int i = 0; i < 100; ++i) {
    sleepers.push_back(enter("ro"));
    say(sleepers.back(), repeated(encode_frame(MetadataGetRequest{"k"}), 8));
  }
  // Those who have read nothing for longest had to go, and those who read are served.
  for (int i = 0; i < 3; ++i) expect_served();
  EXPECT_LT(peak_memory(), kMeasured * 300 * base::kMiB);
  sleepers.clear();
}

TEST_F(HostileClient, ExportsThatNobodyReadsHoldFewDescriptors) {
  serve();
  std::vector<UniqueFd> sleepers;
  for (int i = 0; i < 20; ++i) {
    sleepers.push_back(enter("ro"));
    say(sleepers.back(), repeated(encode_frame(ExportAllocationRequest{id_}), 500));
  }
  for (int i = 0; i < 10; ++i) expect_served();
  EXPECT_LT(fds(), fds_before_ + 60);
  // Who begins to read gets all of it.
  int received = 0;
  const Deadline deadline = soon();
  while (received < 500 && !deadline.expired()) {
    std::array<std::byte, 4096> buffer;
    std::vector<UniqueFd> fds;
    ASSERT_GT(os::receive_with_fds(sleepers.back().get(), buffer, fds), 0);
    received += static_cast<int>(fds.size());
  }
  EXPECT_EQ(received, 500);
}

TEST_F(HostileClient, ExportsOfNothingLeaveNothingToRead) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max = 200;  // for 25 descriptors that nobody has read
  const os::Child child = os::fork_child([&] {
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
    serve();
    if (HasFailure()) return 2;
    const UniqueFd idle = enter("ro");
    say(idle, encode_frame(ExportLayoutRequest{"nosuch"}));
    if (!decode_message<ExportLayoutResponse>(hear(idle)).allocations.empty()) return 3;
    std::vector<UniqueFd> sleepers;
    for (int i = 0; i < 5; ++i) {
      sleepers.push_back(enter("ro"));
      say(sleepers.back(), repeated(encode_frame(ExportAllocationRequest{id_}), 500));
    }
    // Those who do not read have to be let go for it, and nobody else.
    expect_served();
    if (HasFailure()) return 4;
    say(idle, encode_frame(GetLockStateRequest{}));
    return message_type(hear(idle)) == "get_lock_state_response" ? 0 : 5;
  });
  EXPECT_EQ(child.wait(soon()), 0);
}

// --- Who comes, and how many.

TEST_F(HostileClient, OneProcessDoesNotTakeEveryPlace) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max = 200;  // for 100 clients, 25 of one process
  const os::Child child = os::fork_child([&] {
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
    serve();
    if (HasFailure()) return 2;
    std::vector<UniqueFd> places;
    for (int i = 0; i < 40; ++i) places.push_back(dial());
    if (!is_dropped(places.back())) return 3;
    const os::Child other = os::fork_child([&] {
      expect_served();
      return HasFailure() ? 4 : 0;
    });
    return other.wait(soon()).value_or(5);
  });
  EXPECT_EQ(child.wait(soon()), 0);
}

TEST_F(HostileClient, HundredsOfWaitersLeaveAtOnce) {
  serve();
  const UniqueFd reader = enter("ro");
  const os::Child waiters = os::fork_child([&] {
    std::vector<UniqueFd> waiting;
    for (int i = 0; i < 900; ++i) {
      waiting.push_back(dial());
      say(waiting.back(), encode_frame(HandshakeRequest{"rw", std::nullopt}));
    }
    ::pause();
    return 0;
  });
  const auto waiting_writers = [&] {
    say(reader, encode_frame(GetLockStateRequest{}));
    return decode_message<GetLockStateResponse>(hear(reader)).waiting_writers;
  };
  const Deadline deadline = soon();
  while (waiting_writers() < 900) ASSERT_FALSE(deadline.expired());
  waiters.signal(SIGKILL);
  ASSERT_TRUE(waiters.wait(soon()));
  while (waiting_writers() > 0) ASSERT_FALSE(deadline.expired());
}

// --- What a writer may fill.

TEST_F(HostileClient, WriterThatFillsTheMemoryIsRefusedAndGoesOn) {
  serve();
  RpcClient writer = RpcClient::connect(socket_, soon());
  ASSERT_TRUE(writer.shake_hands(LockType::kRw, soon()).grant);
  id_ = writer.allocate(1, "t").allocation_id;
  const std::string value(kMaxMetadataValue, 'v');
  base::ByteCount put = 0;
  const auto fill = [&] {
    for (int i = 0;; ++i, put += value.size()) {
      writer.put_metadata("key " + std::to_string(i), id_, 0, value);
    }
  };
  EXPECT_THAT(failure_of(fill).message, testing::HasSubstr("this layout has no room for more"));
  EXPECT_GT(put, kMaxLayoutRecords - 2 * value.size());
  EXPECT_LT(put, kMaxLayoutRecords);
  EXPECT_LT(peak_memory(), kMeasured * (kMaxLayoutRecords + 128 * base::kMiB));
  // What is deleted makes room.
  EXPECT_TRUE(writer.delete_metadata("key 0"));
  writer.put_metadata("k", id_, 0, value);
  for (int i = 1; i < 63; ++i) writer.delete_metadata("key " + std::to_string(i));
  writer.commit();
}

TEST_F(HostileClient, NamesThatAreTooLongAreRefused) {
  serve();
  RpcClient writer = RpcClient::connect(socket_, soon());
  ASSERT_TRUE(writer.shake_hands(LockType::kRw, soon()).grant);
  const std::string longest(kMaxName, 'n');
  EXPECT_EQ(failure_of([&] { writer.allocate(1, longest + "n"); }).status, ExitStatus::kBadData);
  id_ = writer.allocate(1, longest).allocation_id;
  EXPECT_EQ(failure_of([&] { writer.put_metadata(longest + "n", id_, 0, ""); }).status,
            ExitStatus::kBadData);
  writer.put_metadata(longest, id_, 0, "");
  writer.put_metadata("k", id_, 0, "");
  writer.commit();
}

// --- Other users.

class OtherUser : public HostileClient {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) FO_SKIP("root", "becoming another user needs root");
    HostileClient::SetUp();
    ASSERT_EQ(::chmod(dir_.c_str(), 0711), 0);
  }
  void TearDown() override {
    if (!IsSkipped()) HostileClient::TearDown();
  }

  // 0: is served; 1: is let go without an answer.
  [[nodiscard]] int try_as(uid_t user, gid_t group, const std::vector<gid_t>& groups) const {
    const os::Child child = os::fork_child([&] {
      if (::setgroups(groups.size(), groups.data()) != 0 || ::setgid(group) != 0 ||
          ::setuid(user) != 0) {
        return 3;
      }
      try {
        return RpcClient::connect(socket_, soon()).runtime_state().committed ? 0 : 4;
      } catch (const base::Error& error) {
        return error.status() == ExitStatus::kNotPermitted ? 5 : 1;
      }
    });
    return child.wait(soon()).value_or(-1);
  }
};

TEST_F(OtherUser, IsLetGoWhereTheModeLetsItConnect) {
  serve({"--socket-mode", "0666"});
  struct stat info {};
  ASSERT_EQ(::stat(socket_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0666U);
  EXPECT_EQ(try_as(kNobody, kNobody, {}), 1);
  EXPECT_EQ(try_as(kNobody, 0, {0}), 1);  // our group is no rule
}

TEST_F(OtherUser, IsServedWhenARuleNamesIt) {
  serve({"--socket-mode", "666", "--allow-uid", "12345,65534", "--allow-gid", "777"});
  EXPECT_EQ(try_as(kNobody, kNobody, {}), 0);
  EXPECT_EQ(try_as(12345, kNobody, {}), 0);
  EXPECT_EQ(try_as(12346, kNobody, {}), 1);
  EXPECT_EQ(try_as(12346, 777, {}), 0);
  EXPECT_EQ(try_as(12346, kNobody, {776, 777}), 0);
  EXPECT_EQ(try_as(12346, 778, {776}), 1);
}

}  // namespace
}  // namespace fo::gms
