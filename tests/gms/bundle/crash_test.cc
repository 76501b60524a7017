// The state after the serving process dies at any moment: a published layout is restored, an
// unfinished one is dropped, and in the end all memory is free.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "cuda/device_memory.h"
#include "gms/raw_client.h"
#include "gms/server_with_device.h"
#include "support/failure.h"

namespace fo::gms {
namespace {

// An allocation large enough to be visible in a GPU's used memory.
const base::ByteCount kUnit = test::on_gpu() ? 256 * base::kMiB : kGranule;
// The interval of polls for events that are reported to other processes only.
constexpr useconds_t kLookAgainUs = 1000;

class Crash : public ServerWithDevice {
 protected:
  void SetUp() override {
    ServerWithDevice::SetUp();
    if (IsSkipped()) return;
    all_ = free_memory();
  }

  [[nodiscard]] base::ByteCount free_memory() const {
    return cuda::device_memory(driver_, device_.ordinal).ask().free;
  }

  [[nodiscard]] pid_t serving() const {
    const base::Deadline deadline = soon();
    std::vector<pid_t> children;
    // Polled, because only its parent is notified.
    while ((children = children_of(server_->child().pid())).empty() && !deadline.expired()) {
      ::usleep(kLookAgainUs);
    }
    return children.empty() ? -1 : children.front();
  }

  // Kills the serving process, and returns when it has ended.
  void kill_server() const {
    const auto victim = os::open_pidfd(serving());
    ASSERT_TRUE(victim);
    os::send_signal(victim->get(), SIGKILL);
    pollfd ended{victim->get(), POLLIN, 0};
    ASSERT_EQ(::poll(&ended, 1, soon().poll_timeout()), 1);
  }

  // Returns the layout's hash.
  [[nodiscard]] LayoutHash publish(int allocations) const {
    MemoryManager writer = manager();
    EXPECT_EQ(writer.connect(LockType::kRw, soon()), Grant::kRw);
    for (int i = 0; i < allocations; ++i) {
      const MappedAllocation& made = writer.allocate(kUnit, "t");
      fill(made, static_cast<char>('a' + i % 26));
      writer.rpc().put_metadata("tensor " + std::to_string(i), made.allocation.allocation_id,
                                static_cast<base::ByteCount>(i), "value");
    }
    writer.commit();
    return state().memory_layout_hash;
  }

  void expect_all_given_back() {
    EXPECT_EQ(server_->terminate(), 0);
    expect_used(0);
  }
  void expect_used(base::ByteCount bytes) const {
    const bool frees_late = std::getenv("GMS_SIM_FREE_DELAY") != nullptr;
    const base::Deadline deadline = soon();
    while (frees_late && !cuda::about(free_memory() + bytes, all_) && !deadline.expired()) {
      ::usleep(kLookAgainUs);
    }
    EXPECT_TRUE(cuda::about(free_memory() + bytes, all_));
  }

  base::ByteCount all_ = 0;
};

class SimulatedCrash : public Crash {};

TEST_F(Crash, PublishedLayoutIsBackWithIdsSlotsMetadataHashAndBytes) {
  start();
  {
    // Creates gaps in the slots.
    MemoryManager writer = manager();
    ASSERT_TRUE(writer.connect(LockType::kRw, soon()));
    const AllocationId gone = writer.allocate(kUnit, "t").allocation.allocation_id;
    const AllocationId kept = writer.allocate(2 * kUnit, "u").allocation.allocation_id;
    writer.rpc().put_metadata("key", kept, 256, std::string("\0\xff", 2));
    fill(writer.allocations()[1], 'x');
    ASSERT_TRUE(writer.rpc().free_allocation(gone));
    writer.commit();
  }
  MemoryManager before = manager();
  ASSERT_EQ(before.connect(LockType::kRo, soon()), Grant::kRo);
  before.import_all(cuda::Access::kRead);
  const Metadata metadata = before.fetch_metadata();

  kill_server();
  EXPECT_EQ(byte_at(before.allocations()[0], kUnit), 'x');

  MemoryManager after = manager();
  ASSERT_EQ(after.connect(LockType::kRo, soon()), Grant::kRo);
  after.import_all(cuda::Access::kRead);
  EXPECT_EQ(after.layout_hash(), before.layout_hash());
  ASSERT_EQ(after.allocations().size(), 1u);
  EXPECT_EQ(after.allocations()[0].allocation, before.allocations()[0].allocation);
  EXPECT_EQ(after.allocations()[0].allocation.layout_slot, 1u);
  EXPECT_EQ(after.fetch_metadata(), metadata);
  EXPECT_TRUE(bytes_of(after.allocations()[0]) == bytes_of(before.allocations()[0]));
  // The same memory, not a copy.
  expect_used(2 * kUnit);
  before.unmap_all();
  EXPECT_EQ(before.remap_all(soon()).result, RemapResult::kOk);
  before.unmap_all();
  after.unmap_all();
  expect_all_given_back();
}

TEST_F(Crash, SealedLayoutIsBackAndMayBeAdopted) {
  start();
  RpcClient writer = enter(LockType::kRw);
  writer.allocate(kGranule, "t");
  const LayoutHash hash = writer.seal();
  kill_server();
  EXPECT_EQ(state().state, "LAYOUT_COMMITTED");
  EXPECT_EQ(state().memory_layout_hash, hash);
  RpcClient heir = connect();
  EXPECT_EQ(heir.request_lock(LockType::kRwDataOrRw, soon()).grant, Grant::kRwData);
  EXPECT_EQ(heir.list_allocations().size(), 1u);
  EXPECT_TRUE(heir.export_allocation(heir.list_allocations()[0].allocation_id).valid());
  expect_all_given_back();
}

TEST_F(Crash, ReplacedLayoutDoesNotComeBack) {
  start();
  static_cast<void>(publish(3));
  RpcClient writer = enter(LockType::kRw);
  // The parent has released it, too.
  writer.allocate(kUnit, "t");
  expect_used(kUnit);
  kill_server();
  EXPECT_EQ(state().state, "EMPTY");
  EXPECT_EQ(state().allocation_count, 0);
  expect_used(0);
  expect_all_given_back();
}

TEST_F(Crash, WriterThatOnlyWaitedHasReplacedNothing) {
  start();
  const LayoutHash hash = publish(2);
  RpcClient reader = enter(LockType::kRo);
  const base::UniqueFd waiting = os::connect_unix(socket_, soon());
  os::write_all(waiting.get(), encode_frame(HandshakeRequest{"rw", std::nullopt}), "wait");
  expect_soon([](const auto& now) { return now.waiting_writers == 1; });
  kill_server();
  EXPECT_EQ(state().memory_layout_hash, hash);
  EXPECT_EQ(state().state, "COMMITTED");
  expect_all_given_back();
}

TEST_F(Crash, ConnectsMadeMeanwhileAreServed) {
  start();
  const LayoutHash hash = publish(1);
  const pid_t victim = serving();
  // No new connection is accepted.
  ASSERT_EQ(::kill(victim, SIGSTOP), 0);
  std::vector<RpcClient> clients;
  for (int i = 0; i < 50; ++i) clients.push_back(RpcClient::connect(socket_, soon()));
  kill_server();
  for (RpcClient& client : clients) EXPECT_EQ(client.runtime_state().memory_layout_hash, hash);
  expect_all_given_back();
}

class CrashOfMany : public Crash {
 protected:
  CrashOfMany() { set("GMS_SIM_GRANULARITY", "4096"); }
};

TEST_F(CrashOfMany, AllocationsAndCrashesLeaveNoDescriptorBehind) {
  start();
  MemoryManager writer = manager();
  ASSERT_TRUE(writer.connect(LockType::kRw, soon()));
  // More descriptors than fit into one message, and not a multiple.
  writer.allocate_many(
      std::vector<base::ByteCount>(3 * os::kMaxFdsPerMessage + 1, device_.granularity), "t");
  writer.commit();
  const LayoutHash hash = state().memory_layout_hash;
  const std::size_t parents = fd_count(server_->child().pid());
  EXPECT_GT(parents, 3 * os::kMaxFdsPerMessage);
  kill_server();
  EXPECT_EQ(state().memory_layout_hash, hash);
  const std::size_t servers = fd_count(serving());
  for (int round = 0; round < 3; ++round) {
    kill_server();
    EXPECT_EQ(state().memory_layout_hash, hash);
    EXPECT_EQ(state().allocation_count, static_cast<std::int64_t>(3 * os::kMaxFdsPerMessage + 1));
  }
  // The last client may not be disconnected yet.
  EXPECT_NEAR(static_cast<double>(fd_count(serving())), static_cast<double>(servers), 2);
  // The parent may still close what it needed to start the server.
  expect_soon([&](const auto&) { return fd_count(server_->child().pid()) == parents; });
  RpcClient next = enter(LockType::kRw);
  EXPECT_LT(fd_count(server_->child().pid()), 30u);
  expect_all_given_back();
}

class CrashOfALimitedServer : public Crash {
 protected:
  // A server with a low limit on open files, and its stderr in log().
  [[nodiscard]] os::Child serve_limited() const {
    return os::fork_child([this] {
      const rlimit few{200, 200};
      ::setrlimit(RLIMIT_NOFILE, &few);
      const base::UniqueFd err = os::open_file(path("log"), O_WRONLY | O_CREAT | O_APPEND);
      ::dup2(err.get(), STDERR_FILENO);
      ::execl(FO_BUILD_DIR "/bin/gms-serve", "gms-serve", "--socket-path", socket_.c_str(),
              nullptr);
      return 1;
    });
  }
  [[nodiscard]] std::string log() const { return os::read_file(path("log"), base::kMiB); }
};

TEST_F(CrashOfALimitedServer, LayoutThatDoesNotFitTheLimitIsPublishedUnprotected) {
  {
    const os::Child limited = serve_limited();
    {
      RpcClient writer = enter(LockType::kRw);
      for (int i = 0; i < 125; ++i) writer.allocate(kGranule, "t");
      writer.commit();
    }
    EXPECT_EQ(state().allocation_count, 125);
    EXPECT_THAT(log(),
                testing::HasSubstr("is not protected against a crash of this server: it takes 126 "
                                   "descriptors, there is room for 119"));
    ASSERT_EQ(::kill(children_of(limited.pid()).front(), SIGKILL), 0);
    expect_soon([](const auto& now) { return now.allocation_count == 0; });
    {
      RpcClient writer = enter(LockType::kRw);
      for (int i = 0; i < 100; ++i) writer.allocate(kGranule, "t");
      writer.commit();
    }
    ASSERT_EQ(::kill(children_of(limited.pid()).front(), SIGKILL), 0);
    EXPECT_EQ(state().allocation_count, 100);
    limited.signal(SIGTERM);
    EXPECT_EQ(limited.wait(soon()), 0);
  }
  expect_used(0);
}

TEST_F(CrashOfALimitedServer, RunsOutOfDescriptorsAndGoesOn) {
  set("GMS_SIM_GRANULARITY", "4KiB");
  const os::Child limited = serve_limited();
  unset("GMS_SIM_GRANULARITY");
  int made = 0;
  {
    RpcClient writer = enter(LockType::kRw);
    const auto refusal = test::failure_of([&] {
      for (; made < 300; ++made) writer.allocate(4 * base::kKiB, "t");
    });
    EXPECT_EQ(refusal.status, base::ExitStatus::kTryAgain);
    EXPECT_THAT(refusal.message, testing::HasSubstr("no descriptors left (ulimit -n)"));
    EXPECT_GT(made, 100);
    writer.commit();
  }
  EXPECT_THAT(log(), testing::HasSubstr("is not protected against a crash"));
  EXPECT_THAT(log(), testing::Not(testing::HasSubstr("no room")));
  // Requests for more than the limit do not end it either.
  RpcClient reader = enter(LockType::kRo);
  try {
    static_cast<void>(reader.export_from(reader.list_allocations(), 0));
  } catch (const base::Error& error) {
    EXPECT_EQ(error.status(), base::ExitStatus::kTryAgain) << error.what();
  }
  EXPECT_EQ(state().allocation_count, made);
  limited.signal(SIGTERM);
  EXPECT_EQ(limited.wait(soon()), 0);
}

TEST_F(Crash, OneThatGoesOnCrashingEndsAllWithItsStatus) {
  start();
  static_cast<void>(publish(1));
  for (int crash = 0; crash < 6; ++crash) {
    // Until it answers, because the new process may not have started yet.
    if (crash > 0) {
      EXPECT_EQ(state().state, "COMMITTED");
    }
    kill_server();
  }
  EXPECT_EQ(server_->wait(), 137);
  expect_used(0);
}

TEST_F(Crash, OnRequestTheFirstCrashEndsAll) {
  start({"--on-crash", "exit"});
  static_cast<void>(publish(1));
  EXPECT_LT(fd_count(server_->child().pid()), 20u);
  kill_server();
  EXPECT_EQ(server_->wait(), 137);
  expect_used(0);
}

// It is not documented whether a driver exports imported memory and imports without a context.
TEST_F(SimulatedCrash, RestoredLayoutIsServedWithoutBeingImported) {
  set("GMS_SIM_FAULTS", "cuMemImportFromShareableHandle:*=999");
  start();
  unset("GMS_SIM_FAULTS");
  const LayoutHash hash = publish(3);
  for (int crash = 0; crash < 2; ++crash) {
    kill_server();
    MemoryManager reader = manager();
    ASSERT_EQ(reader.connect(LockType::kRo, soon()), Grant::kRo);
    reader.import_all(cuda::Access::kRead);
    EXPECT_EQ(reader.layout_hash(), hash);
    EXPECT_EQ(byte_at(reader.allocations()[2], 0), 'c');
    expect_used(3 * kUnit);
  }
  expect_all_given_back();
}

// A writer's session, message by message.
class Script {
 public:
  explicit Script(const std::string& socket) : client_(socket) {}

  static constexpr int kMessages = 12;
  static constexpr int kCommit = 11;

  void send(int message) { client_.say(encode(message)); }
  // False if the server has closed the connection.
  bool receive(int message) {
    const std::string body = client_.receive();
    if (body.empty()) return false;
    EXPECT_NE(message_type(body), ErrorResponse::kType) << "message " << message;
    if (message == 1) id_ = decode_message<AllocateResponse>(body).allocation_id;
    return true;
  }

 private:
  [[nodiscard]] std::string encode(int message) const {
    const auto bytes = static_cast<std::int64_t>(kUnit);
    switch (message) {
      case 0:
        return encode_frame(HandshakeRequest{"rw", 20'000});
      case 1:
      case 2:
        return encode_frame(AllocateRequest{bytes, "t"});
      case 3:
        return encode_frame(AllocateManyRequest{{{bytes, "t"}, {bytes, "t"}}});
      case 4:
        return encode_frame(ExportAllocationRequest{id_});
      case 5:
        return encode_frame(ExportLayoutRequest{});
      case 6:
        return encode_frame(MetadataPutRequest{{"k", id_, 0, Bytes{"v"}}});
      case 7:
        return encode_frame(MetadataPutManyRequest{{{"l", id_, 1, Bytes{"v"}}}});
      case 8:
        return encode_frame(MetadataDeleteRequest{"k"});
      case 9:
        return encode_frame(GetLockStateRequest{});
      case 10:
        return encode_frame(FreeAllocationRequest{id_});
      default:
        return encode_frame(CommitRequest{});
    }
  }

  RawClient client_;
  AllocationId id_;
};

// For each message: killed when it is sent, and when it is answered.
TEST_F(Crash, AtEveryMessageOfAWriterNothingHalfIsLeft) {
  for (int last = 0; last < Script::kMessages; ++last) {
    for (const bool answered : {false, true}) {
      SCOPED_TRACE("message " + std::to_string(last) + (answered ? ", answered" : ", sent"));
      start();
      {
        Script writer(socket_);
        for (int message = 0; message < last; ++message) {
          writer.send(message);
          ASSERT_TRUE(writer.receive(message));
        }
        writer.send(last);
        if (answered) {
          ASSERT_TRUE(writer.receive(last));
        }
        kill_server();
      }
      // A client that was not accepted yet is served by the new server.
      expect_soon([](const auto& now) { return !now.has_rw_session; });
      const auto found = state();
      if (found.committed) {
        EXPECT_EQ(last, Script::kCommit);
        EXPECT_EQ(found.allocation_count, 3);
        EXPECT_EQ(found.memory_layout_hash.value().size(), 64u);
      } else {
        EXPECT_FALSE(last == Script::kCommit && answered);
        EXPECT_EQ(found.state, "EMPTY");
        expect_used(0);
      }
      // It continues to work normally.
      const LayoutHash hash = publish(2);
      EXPECT_EQ(state().allocation_count, 2);
      EXPECT_EQ(state().memory_layout_hash, hash);
      expect_all_given_back();
    }
  }
}

TEST_F(Crash, AtEveryMessageOfAReaderTheLayoutStays) {
  const std::array<std::function<void(RpcClient&)>, 9> requests{
      [](RpcClient& reader) { reader.request_lock(LockType::kRo, soon()); },
      [](RpcClient& reader) { reader.list_allocations(); },
      [](RpcClient& reader) { reader.layout_hash(); },
      [](RpcClient& reader) { reader.lock_state(); },
      [](RpcClient& reader) { reader.list_metadata(); },
      [](RpcClient& reader) { reader.get_metadata("tensor 0"); },
      [](RpcClient& reader) { reader.fetch_metadata(); },
      [](RpcClient& reader) { reader.export_from(reader.list_allocations(), 0); },
      [](RpcClient& reader) {
        reader.export_allocation(reader.list_allocations().front().allocation_id);
      },
  };
  for (std::size_t last = 0; last < requests.size(); ++last) {
    start();
    const LayoutHash hash = publish(2);
    RpcClient reader = RpcClient::connect(socket_, soon());
    for (std::size_t i = 0; i <= last; ++i) requests[i](reader);
    kill_server();
    EXPECT_EQ(state().memory_layout_hash, hash);
    EXPECT_THROW(reader.lock_state(), base::Error);
    RpcClient next = enter(LockType::kRo);
    for (std::size_t i = 1; i <= last; ++i) EXPECT_NO_THROW(requests[i](next));
    expect_all_given_back();
  }
}

// Kills within the driver's calls, where there are no messages.
TEST_F(SimulatedCrash, AtEveryCallOfTheDriverNothingHalfIsLeft) {
  for (const char* call : {"cuMemCreate:1", "cuMemCreate:3", "cuMemExportToShareableHandle:1",
                           "cuMemExportToShareableHandle:2", "cuMemExportToShareableHandle:3"}) {
    SCOPED_TRACE(call);
    set("GMS_SIM_FAULTS", std::string(call) + "=kill");
    start();
    unset("GMS_SIM_FAULTS");
    EXPECT_THROW(
        {
          RpcClient writer = RpcClient::connect(socket_, soon());
          writer.request_lock(LockType::kRw, soon());
          for (int i = 0; i < 3; ++i) writer.allocate(kUnit, "t");
          writer.commit();
        },
        base::Error);
    EXPECT_EQ(state().state, "EMPTY");
    expect_used(0);
    expect_all_given_back();
  }
}

TEST_F(Crash, AtAnyMomentUnderLoad) {
  std::mt19937 random(20261121);
  for (int round = 0; round < 12; ++round) {
    start();
    const LayoutHash hash = publish(4);
    std::vector<os::Child> readers;
    for (int i = 0; i < 3; ++i) {
      readers.push_back(os::fork_child([&] {
        for (;;) {
          try {
            RpcClient reader = RpcClient::connect(socket_, soon());
            if (!reader.request_lock(LockType::kRo, soon()).grant) continue;
            if (reader.layout_hash() != hash) return 1;
            if (reader.export_from(reader.list_allocations(), 0).size() != 4) return 2;
            if (reader.fetch_metadata().size() != 4) return 3;
          } catch (const base::Error& error) {
            // Killed in the middle of an answer; any other error is a failure.
            if (error.status() != base::ExitStatus::kUnavailable) return 4;
          }
        }
      }));
    }
    for (int crash = 0; crash < 3; ++crash) {
      const std::chrono::microseconds pause(random() % 3000);
      ::usleep(static_cast<useconds_t>(pause.count()));
      kill_server();
      EXPECT_EQ(state().memory_layout_hash, hash);
    }
    for (const os::Child& reader : readers) {
      reader.signal(SIGKILL);
      EXPECT_EQ(reader.wait(soon()), 137);
    }
    expect_all_given_back();
  }
}

}  // namespace
}  // namespace fo::gms
