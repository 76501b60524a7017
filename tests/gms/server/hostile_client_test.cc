// Clients that violate the protocol, do not read, request too much or send garbage, against a real
// server: it still serves others, and ends with the number of descriptors that it had before.
#include <gmock/gmock.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <thread>

#include "gms/gms_process.h"
#include "gms/protocol/layout.h"
#include "gms/raw_client.h"
#include "gms/server/connection.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/must_run.h"
#include "support/sanitizers.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::ExitStatus;
using base::UniqueFd;
using test::failure_of;

constexpr uid_t kNobody = 65534;
// A sanitizer keeps freed memory and data of its own.
constexpr base::ByteCount kMeasured = test::kHasSanitizers ? 8 : 1;

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
    test::await([&] { return sockets() == without_clients; });
    fds_before_ = fds();
  }

  void TearDown() override {
    if (server_) {
      // All clients have left, and the server must be in its initial state.
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
  // Peak memory of the server.
  [[nodiscard]] base::ByteCount peak_memory() const {
    std::ifstream status("/proc/" + std::to_string(serving_) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * base::kKiB;
    }
    ADD_FAILURE() << "no VmHWM";
    return 0;
  }

  void publish(base::ByteCount value = 0) const {
    RpcClient writer = enter(LockType::kRw);
    id_ = writer.allocate(kGranule, "t").allocation_id;
    writer.put_metadata("k", id_, 0, std::string(value, 'v'));
    writer.commit();
  }

  // A client that follows the protocol is served.
  void expect_served() const {
    RpcClient reader = enter(LockType::kRo);
    EXPECT_TRUE(reader.export_allocation(id_).valid());
    EXPECT_TRUE(reader.get_metadata("k"));
  }

  // Writes as much as the server accepts now.
  static std::size_t say_some(const RawClient& client, std::string_view bytes) {
    const ssize_t said =
        ::send(client.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return said < 0 ? 0 : static_cast<std::size_t>(said);
  }
  [[nodiscard]] RawClient raw_reader() const {
    RawClient client(socket_);
    EXPECT_TRUE(client.ask<HandshakeResponse>(HandshakeRequest{"ro", std::nullopt}).success);
    return client;
  }
  static std::int64_t waiting_writers(const RawClient& reader) {
    return reader.ask<GetLockStateResponse>(GetLockStateRequest{}).waiting_writers;
  }
  // Whether the server has closed the connection, or does so in time.
  static bool is_dropped(const RawClient& client) {
    pollfd state{client.fd(), POLLRDHUP, 0};
    return ::poll(&state, 1, soon().poll_timeout()) == 1;
  }

  pid_t serving_ = 0;
  std::size_t fds_before_ = 0;
  mutable AllocationId id_;
};

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// --- Invalid requests.

TEST_F(HostileClient, OnlyAWriterMaySendLongRequests) {
  serve();
  const std::string long_frame("\0\1\0\0", 4);  // 64 KiB will follow
  const RawClient stranger(socket_);
  stranger.say(long_frame);
  EXPECT_TRUE(is_dropped(stranger));
  const RawClient reader = raw_reader();
  reader.say(long_frame);
  EXPECT_TRUE(is_dropped(reader));
  // A request of the maximum short size is read, and refused for its content.
  const RawClient other = raw_reader();
  std::string longest = encode_frame(MetadataListRequest{std::string(
      Connection::kMaxShortFrame - encode_frame(MetadataListRequest{}).size() + kPrefixSize - 2,
      'p')});
  ASSERT_EQ(longest.size(), kPrefixSize + Connection::kMaxShortFrame);
  other.say(longest);
  EXPECT_EQ(message_type(other.receive()), "metadata_list_response");
}

TEST_F(HostileClient, GarbageAtAnyMomentEndsOnlyItsConnection) {
  serve();
  std::mt19937 random(4711);
  const std::string handshake = encode_frame(HandshakeRequest{"ro", 0});
  for (int round = 0; round < 200; ++round) {
    std::string garbage(random() % 200, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    // Mostly complete frames, because others are not decoded.
    if (round % 4 != 0)
      garbage = std::string("\0\0\0", 3) + static_cast<char>(garbage.size()) + garbage;
    const RawClient peer(socket_);
    peer.say((round % 2 == 0 ? handshake : "") + garbage);
    ::shutdown(peer.fd(), SHUT_WR);
    EXPECT_TRUE(is_dropped(peer));
  }
}

// Claims more values than an int counts: the reader must not read past the message.
TEST_F(HostileClient, ListThatClaimsMoreThanThereIsEndsItsConnection) {
  serve();
  const RawClient reader = raw_reader();
  const std::string body("\x82\xa4type\xb0get_lock_statexx\xa1x\xdd\xfc\0\0\1", 30);
  reader.say(std::string("\0\0\0", 3) + static_cast<char>(body.size()) + body);
  EXPECT_TRUE(is_dropped(reader));
}

TEST_F(HostileClient, ClientThatAlwaysHasARequestReadyKeepsNobodyWaiting) {
  serve();
  const RawClient flooder = raw_reader();
  const std::string requests = repeated(encode_frame(GetLockStateRequest{}), 1000);
  std::thread reading([&] {
    char sink[65536];
    while (::recv(flooder.fd(), sink, sizeof sink, 0) > 0) continue;
  });
  std::thread writing([&] {
    while (::send(flooder.fd(), requests.data(), requests.size(), MSG_NOSIGNAL) > 0) continue;
  });
  for (int i = 0; i < 20; ++i) expect_served();
  ::shutdown(flooder.fd(), SHUT_RDWR);
  writing.join();
  reading.join();
}

TEST_F(HostileClient, ManyWhoSayOneByteOrNothingKeepNobodyWaiting) {
  serve();
  std::vector<RawClient> idle;
  for (int i = 0; i < 300; ++i) {
    idle.emplace_back(socket_);
    if (i % 2 == 0) idle.back().say(std::string(1, '\0'));
  }
  for (int i = 0; i < 20; ++i) expect_served();
}

// It pipelines as many bytes as the server accepts; the server must not store more, and must notice
// the hang-up.
TEST_F(HostileClient, WaitingClientThatSendsWithoutEndIsForgottenWhenItGoes) {
  serve();
  const RawClient reader = raw_reader();
  {
    const RawClient writer(socket_);
    writer.say(encode_frame(HandshakeRequest{"rw", std::nullopt}));
    const std::string requests = repeated(encode_frame(GetLockStateRequest{}), 1000);
    for (std::size_t sent = 0; sent < (1u << 20);) {
      const std::size_t more = say_some(writer, requests);
      if (more == 0) break;
      sent += more;
    }
    test::await([&] { return waiting_writers(reader) > 0; });
  }
  test::await([&] { return waiting_writers(reader) == 0; });
  EXPECT_LT(peak_memory(), kMeasured * 64 * base::kMiB);
}

// Pipelined requests are answered in order, even those that did not fit at first.
TEST_F(HostileClient, PipelinedRequestsOfAWaitingClientAreAllAnswered) {
  serve();
  RawClient reader = raw_reader();
  const RawClient waiting(socket_);
  constexpr int kRequests = 3000;
  std::thread talking([&] {
    waiting.say(encode_frame(HandshakeRequest{"rw", std::nullopt}));
    for (int i = 0; i < kRequests; ++i) {
      waiting.say(encode_frame(MetadataGetRequest{"key " + std::to_string(i)}));
    }
    waiting.say(encode_frame(GetAllocationStateRequest{}));
  });
  reader.ask<GetLockStateResponse>(GetLockStateRequest{});
  reader.hang_up();
  EXPECT_TRUE(decode_message<HandshakeResponse>(waiting.receive()).success);
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_FALSE(decode_message<MetadataGetResponse>(waiting.receive()).found) << i;
  }
  EXPECT_EQ(decode_message<GetAllocationStateResponse>(waiting.receive()).allocation_count, 0);
  talking.join();
  id_ = waiting.ask<AllocateResponse>(AllocateRequest{1, "t"}).allocation_id;
  waiting.say(encode_frame(MetadataPutRequest{{"k", id_, 0, {}}}) + encode_frame(CommitRequest{}));
  waiting.receive();
  EXPECT_TRUE(decode_message<CommitResponse>(waiting.receive()).success);
}

TEST_F(HostileClient, DescriptorsThatComeWithRequestsAreNotKept) {
  serve();
  os::Pipe pipe;
  {
    const RawClient reader = raw_reader();
    const std::string frame = encode_frame(GetLockStateRequest{});
    const std::vector<int> many(os::kMaxFdsPerMessage, pipe.writer.get());
    for (int i = 0; i < 20; ++i) {
      ASSERT_GT(os::send_with_fds(reader.fd(), std::as_bytes(std::span(frame)), many), 0);
    }
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(message_type(reader.receive()), "get_lock_state_response");
    EXPECT_LT(fds(), fds_before_ + 10);
  }
  pipe.writer.reset();
  char byte = 0;
  EXPECT_EQ(::read(pipe.reader.get(), &byte, 1), 0);  // every copy is closed
}

// --- Unread answers.

TEST_F(HostileClient, AnswersThatNobodyReadsTakeABoundedAmountOfMemory) {
  serve();
  publish(kMaxMetadataValue);
  std::vector<RawClient> sleepers;
  for (int i = 0; i < 100; ++i) {
    sleepers.push_back(raw_reader());
    sleepers.back().say(repeated(encode_frame(MetadataGetRequest{"k"}), 8));
  }
  // The clients that read nothing for the longest time were disconnected; clients that read are
  // served.
  for (int i = 0; i < 3; ++i) expect_served();
  // Of unread answers it keeps 128 MiB, and no more while it disconnects clients.
  EXPECT_LT(peak_memory(), kMeasured * 200 * base::kMiB);
  sleepers.clear();
}

TEST_F(HostileClient, ExportsThatNobodyReadsHoldFewDescriptors) {
  serve();
  std::vector<RawClient> sleepers;
  for (int i = 0; i < 20; ++i) {
    sleepers.push_back(raw_reader());
    sleepers.back().say(repeated(encode_frame(ExportAllocationRequest{id_}), 500));
  }
  for (int i = 0; i < 10; ++i) expect_served();
  EXPECT_LT(fds(), fds_before_ + 60);
  // A client that starts to read receives everything.
  int received = 0;
  const Deadline deadline = soon();
  while (received < 500 && !deadline.expired()) {
    std::array<std::byte, 4096> buffer;
    std::vector<UniqueFd> fds;
    ASSERT_GT(os::receive_with_fds(sleepers.back().fd(), buffer, fds), 0);
    received += static_cast<int>(fds.size());
  }
  EXPECT_EQ(received, 500);
}

TEST_F(HostileClient, ExportsOfNothingLeaveNothingToRead) {
  const os::Child child = os::fork_child([&] {
    const rlimit few{200, 200};  // for 25 unread descriptors
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
    serve();
    if (HasFailure()) return 2;
    const RawClient idle = raw_reader();
    const auto page = idle.ask<ExportLayoutResponse>(ExportLayoutRequest{"nosuch"});
    if (!page.allocations.empty()) return 3;
    std::vector<RawClient> sleepers;
    for (int i = 0; i < 5; ++i) {
      sleepers.push_back(raw_reader());
      sleepers.back().say(repeated(encode_frame(ExportAllocationRequest{id_}), 500));
    }
    // Only clients that do not read may be disconnected for it.
    expect_served();
    if (HasFailure()) return 4;
    idle.say(encode_frame(GetLockStateRequest{}));
    return message_type(idle.receive()) == "get_lock_state_response" ? 0 : 5;
  });
  EXPECT_EQ(child.wait(soon()), 0);
}

// --- Numbers of clients.

TEST_F(HostileClient, OneProcessDoesNotTakeEveryPlace) {
  const os::Child child = os::fork_child([&] {
    const rlimit few{200, 200};  // for 100 clients, 25 of one process
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
    serve();
    if (HasFailure()) return 2;
    std::vector<RawClient> places;
    for (int i = 0; i < 40; ++i) places.emplace_back(socket_);
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
  const RawClient reader = raw_reader();
  const os::Child waiters = os::fork_child([&] {
    std::vector<RawClient> waiting;
    for (int i = 0; i < 900; ++i) {
      waiting.emplace_back(socket_);
      waiting.back().say(encode_frame(HandshakeRequest{"rw", std::nullopt}));
    }
    ::pause();
    return 0;
  });
  test::await([&] { return waiting_writers(reader) == 900; });
  waiters.signal(SIGKILL);
  ASSERT_TRUE(waiters.wait(soon()));
  test::await([&] { return waiting_writers(reader) == 0; });
}

// --- Limits of a writer.

TEST_F(HostileClient, WriterThatFillsTheMemoryIsRefusedAndGoesOn) {
  serve();
  RpcClient writer = enter(LockType::kRw);
  id_ = writer.allocate(1, "t").allocation_id;
  const std::string value(kMaxMetadataValue, 'v');
  base::ByteCount put = 0;
  const auto fill = [&] {
    for (int i = 0;; ++i, put += value.size()) {
      writer.put_metadata("key " + std::to_string(i), id_, 0, value);
    }
  };
  EXPECT_THAT(failure_of(fill).message, testing::HasSubstr("this layout's records are full"));
  EXPECT_GT(put, kMaxLayoutRecords - 2 * value.size());
  EXPECT_LT(put, kMaxLayoutRecords);
  EXPECT_LT(peak_memory(), kMeasured * (kMaxLayoutRecords + 128 * base::kMiB));
  // Deleted metadata makes room.
  EXPECT_TRUE(writer.delete_metadata("key 0"));
  writer.put_metadata("k", id_, 0, value);
  for (int i = 1; i < 63; ++i) writer.delete_metadata("key " + std::to_string(i));
  writer.commit();
}

TEST_F(HostileClient, NamesThatAreTooLongAreRefused) {
  serve();
  RpcClient writer = enter(LockType::kRw);
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

  // 0: is served; 1: is disconnected without an answer.
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
  EXPECT_EQ(try_as(kNobody, 0, {0}), 1);  // our group is not in the rules
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
