// The serving loop with real sockets, the state machine and a driver; mostly error cases.
#include "gms/server/server.h"

#include <gmock/gmock.h>
#include <msgpuck.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "gms/gms_process.h"
#include "gms/raw_client.h"
#include "gms/server/server_counters.h"
#include "os/file/file.h"
#include "support/await.h"
#include "support/failure.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::ExitStatus;
using test::status_of;
using testing::ElementsAre;
using testing::IsEmpty;

// A request with a list of `count` nils.
std::string list_of_nothings(std::string_view type, std::string_view list, std::uint32_t count) {
  std::array<char, 256> head;
  char* at = mp_encode_map(head.data(), 2);
  const auto put = [&at](std::string_view text) {
    at = mp_encode_str(at, text.data(), static_cast<std::uint32_t>(text.size()));
  };
  put("type");
  put(type);
  put(list);
  at = mp_encode_array(at, count);
  std::string body(head.data(), static_cast<std::size_t>(at - head.data()));
  body.append(count, '\xc0');
  std::string frame;
  for (const unsigned shift : {24U, 16U, 8U, 0U}) {
    frame += static_cast<char>(body.size() >> shift & 0xff);
  }
  return frame + body;
}

void wait_until_stopped(pid_t pid) {
  test::await([pid] {
    return os::read_file("/proc/" + std::to_string(pid) + "/stat", 4096).find(") T ") !=
           std::string::npos;
  });
}

class Server : public OneServer {
 protected:
  void publish(int allocations) const {
    RpcClient writer = enter(LockType::kRw);
    for (int i = 0; i < allocations; ++i) writer.allocate(kGranule, "t");
    writer.commit();
  }
  [[nodiscard]] std::ptrdiff_t failed_allocations() const {
    return std::ranges::count(connect().event_history(), "allocation_oom", &Event::kind);
  }
  void expect_out_of_memory() const {
    expect_soon([this](const auto&) { return failed_allocations() > 0; });
  }
};

class SimulatedServer : public Server {};

TEST_F(Server, PublishesALayoutAndLendsIt) {
  start();
  RpcClient writer = enter(LockType::kRw);
  const AllocateResponse first = writer.allocate(5, "t");
  EXPECT_EQ(first.aligned_size, static_cast<std::int64_t>(kGranule));
  EXPECT_EQ(first.layout_slot, 0);
  const AllocateResponse second = writer.allocate(kGranule + 1, "u");
  EXPECT_EQ(second.aligned_size, static_cast<std::int64_t>(2 * kGranule));
  writer.put_metadata("k", first.allocation_id, 256, "value");
  EXPECT_EQ(writer.layout_hash(), LayoutHash());
  writer.commit();
  EXPECT_EQ(status_of([&] { writer.layout_hash(); }), ExitStatus::kUnavailable);

  RpcClient reader = enter(LockType::kRo);
  EXPECT_EQ(reader.layout_hash().value().size(), 64u);
  EXPECT_EQ(reader.list_allocations().size(), 2u);
  EXPECT_EQ(reader.list_allocations("u").size(), 1u);
  EXPECT_EQ(reader.get_allocation(first.allocation_id).tag, "t");
  EXPECT_THAT(reader.list_metadata(""), ElementsAre("k"));
  EXPECT_THAT(reader.list_metadata("x"), IsEmpty());
  EXPECT_EQ(reader.get_metadata("k"), (MetadataEntry{first.allocation_id, 256, "value"}));
  EXPECT_EQ(reader.get_metadata("absent"), std::nullopt);
  EXPECT_TRUE(reader.export_allocation(second.allocation_id).valid());
  EXPECT_EQ(reader.lock_state().ro_session_count, 1);
  EXPECT_EQ(server_->terminate(), 0);
  EXPECT_FALSE(std::filesystem::exists(socket_));
}

TEST_F(Server, RefusalsLeaveTheConnectionAlive) {
  start();
  RpcClient writer = enter(LockType::kRw);
  EXPECT_THROW(writer.allocate(0, "t"), RequestRefused);
  EXPECT_THROW(writer.allocate(static_cast<base::ByteCount>(-5), "t"), RequestRefused);
  EXPECT_THROW(writer.allocate(device_size_ + 1, "t"), RequestRefused);
  EXPECT_THROW(writer.allocate(std::numeric_limits<std::int64_t>::max(), "t"), RequestRefused);
  EXPECT_THROW(writer.put_metadata("k", AllocationId("no such id"), 0, ""), RequestRefused);
  const AllocateResponse made = writer.allocate(1, "t");
  EXPECT_THROW(writer.put_metadata("k", made.allocation_id, kGranule, ""), RequestRefused);
  EXPECT_THROW(
      writer.put_metadata("k", made.allocation_id, 0, std::string(kMaxMetadataValue + 1, 'v')),
      RequestRefused);
  EXPECT_THROW(writer.export_allocation(AllocationId("no such id")), RequestRefused);
  EXPECT_THROW(writer.request_lock(LockType::kRo, soon()), RequestRefused);
  EXPECT_FALSE(writer.free_allocation(AllocationId("no such id")));
  EXPECT_FALSE(writer.delete_metadata("no such key"));
  EXPECT_TRUE(writer.free_allocation(made.allocation_id));
  EXPECT_EQ(writer.allocate(1, "t").layout_slot, 1);
}

TEST_F(Server, ReadersMayNotWrite) {
  start();
  publish(1);
  RpcClient reader = enter(LockType::kRo);
  EXPECT_EQ(status_of([&] { reader.allocate(1, "t"); }), ExitStatus::kNotPermitted);
  EXPECT_EQ(status_of([&] { reader.commit(); }), ExitStatus::kNotPermitted);
  EXPECT_EQ(status_of([&] { reader.seal(); }), ExitStatus::kNotPermitted);
  EXPECT_EQ(status_of([&] { reader.free_allocation(AllocationId("x")); }),
            ExitStatus::kNotPermitted);
  EXPECT_EQ(status_of([&] { reader.put_metadata("k", AllocationId("x"), 0, ""); }),
            ExitStatus::kNotPermitted);
  EXPECT_EQ(status_of([&] { reader.delete_metadata("k"); }), ExitStatus::kNotPermitted);
  EXPECT_EQ(reader.list_allocations().size(), 1u);
}

TEST_F(Server, SealedLayoutIsFilledByWhoAdoptsIt) {
  start();
  {
    RpcClient writer = enter(LockType::kRw);
    writer.allocate(1, "t");
    const LayoutHash hash = writer.seal();
    EXPECT_EQ(hash.value().size(), 64u);
    EXPECT_EQ(status_of([&] { writer.commit(); }), ExitStatus::kNotPermitted);
    EXPECT_EQ(writer.layout_hash(), hash);
  }
  expect_soon([](const auto& now) { return now.state == "LAYOUT_COMMITTED"; });
  RpcClient adopter = connect();
  EXPECT_EQ(adopter.request_lock(LockType::kRwDataOrRw, soon()).grant, Grant::kRwData);
  EXPECT_EQ(adopter.list_allocations().size(), 1u);
}

TEST_F(Server, LockThatIsNotToBeHadInTimeIsRefusedAndTheConnectionClosed) {
  start();
  const RpcClient writer = enter(LockType::kRw);
  RpcClient other = connect();
  EXPECT_EQ(other.request_lock(LockType::kRo, Deadline::after(std::chrono::milliseconds(1))).grant,
            std::nullopt);
  EXPECT_EQ(status_of([&] { other.lock_state(); }), ExitStatus::kUnavailable);
  EXPECT_EQ(state().waiting_writers, 0);
}

TEST_F(Server, KilledWriterDropsItsLayoutAndItsMemory) {
  start();
  const os::Child writer = os::fork_child([&] {
    RpcClient client = enter(LockType::kRw);
    client.allocate(parts(200), "t");
    ::pause();
    return 0;
  });
  expect_soon([](const auto& now) { return now.allocation_count == 1; });
  writer.signal(SIGKILL);
  ASSERT_TRUE(writer.wait(soon()));
  expect_soon([](const auto& now) { return now.state == "EMPTY"; });
  RpcClient next = enter(LockType::kRw);
  next.allocate(parts(200), "t");
}

TEST_F(Server, DeadWriterInTheQueueNeitherBlocksReadersNorWipesTheLayout) {
  start();
  publish(2);
  auto reader = std::make_unique<RpcClient>(enter(LockType::kRo));
  {
    const RawClient writer(socket_);
    writer.say(encode_frame(HandshakeRequest{"rw", std::nullopt}));
    expect_soon([](const auto& now) { return now.waiting_writers == 1; });
  }
  expect_soon([](const auto& now) { return now.waiting_writers == 0; });
  const RpcClient second = enter(LockType::kRo);
  reader.reset();
  expect_soon([](const auto& now) { return now.ro_session_count == 1; });
  EXPECT_EQ(state().allocation_count, 2);
}

// The client pipelines requests after its handshake and hangs up: its end is hidden behind bytes.
TEST_F(Server, DeadWriterThatPipelinedIsNeverGranted) {
  start();
  publish(2);
  auto reader = std::make_unique<RpcClient>(enter(LockType::kRo));
  {
    const RawClient writer(socket_);
    writer.say(encode_frame(HandshakeRequest{"rw", std::nullopt}) +
               encode_frame(AllocateRequest{1, "t"}) + encode_frame(CommitRequest{}));
  }
  reader.reset();
  expect_soon([](const auto& now) { return now.state == "COMMITTED"; });
  EXPECT_EQ(state().allocation_count, 2);
  EXPECT_THAT(connect().event_history(), testing::SizeIs(2));
}

TEST_F(Server, PipelinedRequestsAreAnsweredInOrder) {
  start();
  const RawClient writer(socket_);
  writer.say(encode_frame(HandshakeRequest{"rw", 0}) + encode_frame(AllocateRequest{1, "t"}) +
             encode_frame(GetAllocationStateRequest{}) + encode_frame(CommitRequest{}));
  std::vector<std::string> types;
  for (std::string body; !(body = writer.receive()).empty();) types.push_back(message_type(body));
  EXPECT_THAT(types, ElementsAre("handshake_response", "allocate_response",
                                 "get_allocation_state_response", "commit_response"));
}

TEST_F(Server, FirstMessageMustBeOneThatMayComeFirst) {
  start();
  const RawClient stranger(socket_);
  stranger.say(encode_frame(CommitRequest{}));
  EXPECT_EQ(decode_message<ErrorResponse>(stranger.receive()).error, "Expected HandshakeRequest");
  const RawClient confused(socket_);
  confused.say(encode_frame(HandshakeRequest{"exclusive", 0}));
  EXPECT_EQ(message_type(confused.receive()), "error_response");
}

// A frame around a map of these pairs, each already in msgpack.
std::string frame_of(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string body(1, static_cast<char>(0x80 + pairs.size()));
  for (const auto& [key, value] : pairs) {
    body += static_cast<char>(0xa0 + key.size());
    body += key + value;
  }
  return std::string("\0\0\0", 3) + static_cast<char>(body.size()) + body;
}
std::string text(const std::string& word) {
  return "\xd9" + std::string(1, static_cast<char>(word.size())) + word;
}
const std::string kNil = "\xc0";

// Dynamo's v1 profile finds sockets by the names of our links, and its writers send a similar
// handshake.
TEST_F(Server, ClientsOfAnotherProtocolAreTurnedAwayBeforeTheyCanDoAnything) {
  start();
  publish(2);
  const std::string two_texts = "\x92" + text("nonce") + text("GPU-1");
  const std::string request = text("handshake_request");
  const std::vector<std::string> foreign{
      frame_of({{"type", request}, {"lock_type", text("rw")}, {"expected_identity", kNil}}),
      frame_of(
          {{"expected_identity", two_texts}, {"lock_type", text("rw_or_ro")}, {"type", request}}),
      frame_of({{"type", request}, {"lock_type", text("rw")}, {"process_fence", "\xc2"}}),
      frame_of({{"type", text("get_checkpoint_state_request")}}),
      frame_of({{"type", text("complete_restore_request")}, {"token", text("x")}}),
  };
  for (const std::string& first : foreign) {
    const RawClient client(socket_);
    client.say(first);
    const std::string answer = client.receive();
    // Exactly these fields, in a map of three: its decoder refuses any other.
    EXPECT_EQ(answer.substr(0, 21),
              "\x83\xa4type\xae"
              "error_response");
    const auto refusal = decode_message<V1ErrorResponse>(answer);
    EXPECT_THAT(refusal.message, testing::HasSubstr("v1"));
    EXPECT_FALSE(refusal.out_of_memory);
    EXPECT_EQ(client.receive(), "");
  }
  EXPECT_EQ(state().state, "COMMITTED");
  EXPECT_EQ(state().allocation_count, 2);
  EXPECT_THAT(connect().event_history(), testing::SizeIs(2)) << "one writer, of this protocol";
  // It is not queued either while a reader is active.
  const RpcClient reader = enter(LockType::kRo);
  const RawClient client(socket_);
  client.say(foreign.front());
  EXPECT_NE(client.receive(), "");
  EXPECT_EQ(state().waiting_writers, 0);
}

TEST_F(Server, UnknownKeysOfAHandshakeAreIgnored) {
  start();
  const RawClient client(socket_);
  client.say(
      frame_of({{"type", text("handshake_request")}, {"lock_type", text("rw")}, {"hint", kNil}}));
  EXPECT_TRUE(decode_message<HandshakeResponse>(client.receive()).success);
}

// Log filters, and the tests of Dynamo's client, search for these texts.
TEST_F(Server, RefusalsHaveTheWordsOfDynamosServer) {
  start();
  publish(1);
  const auto refusal_of = [](const auto& request) {
    try {
      request();
    } catch (const RequestRefused& refused) {
      return std::string(refused.what());
    }
    return std::string("not refused");
  };
  {
    RpcClient reader = enter(LockType::kRo);
    EXPECT_THAT(refusal_of([&] { reader.commit(); }),
                testing::HasSubstr("not allowed for RO session"));
    EXPECT_THAT(refusal_of([&] { static_cast<void>(reader.get_allocation(AllocationId("none"))); }),
                testing::HasSubstr("Unknown allocation: none"));
  }
  RpcClient writer = enter(LockType::kRw);
  const AllocationId id = writer.allocate(1, "t").allocation_id;
  EXPECT_THAT(refusal_of([&] { writer.put_metadata("k", id, 1u << 30, ""); }),
              testing::HasSubstr("out of range"));
  EXPECT_THAT(refusal_of([&] { writer.put_metadata("k", id, ~base::ByteCount{0}, ""); }),
              testing::HasSubstr("offset_bytes must be >= 0"));
  EXPECT_THAT(refusal_of([&] { writer.put_metadata("k", AllocationId("no\nne"), 0, ""); }),
              testing::HasSubstr("Unknown allocation: no\\x0ane"));
  EXPECT_THAT(refusal_of([&] { writer.allocate(0, "t"); }), testing::HasSubstr("size must be > 0"));
}

TEST_F(Server, BadFramesEndOnlyTheirConnection) {
  start();
  publish(1);
  const std::string handshake = encode_frame(HandshakeRequest{"ro", 0});
  const std::vector<std::string> hostile{
      std::string("\xff\xff\xff\xff", 4),          // a frame of 4 GiB
      std::string("\0\0\0\1\xc1", 5),              // no msgpack
      std::string("\0\0\0\1\x80", 5),              // a map without a type
      std::string("\0\0\0\0", 4),                  // nothing
      handshake + std::string("\0\0\0\1\x05", 5),  // a number after a good handshake
  };
  for (const std::string& bytes : hostile) {
    const RawClient peer(socket_);
    peer.say(bytes);
    peer.hear_all();
  }
  for (std::size_t size = 0; size < handshake.size(); ++size) {
    const RawClient peer(socket_);
    peer.say(handshake.substr(0, size));
    ::shutdown(peer.fd(), SHUT_WR);
    EXPECT_EQ(peer.hear_all(), "");
  }
  EXPECT_EQ(state().state, "COMMITTED");
}

TEST_F(Server, OutOfMemoryWaitsUntilThereIsRoomWithoutHoldingOthersUp) {
  start({"--alloc-retry-interval", "5ms"});
  {
    RpcClient publisher = enter(LockType::kRw);
    publisher.allocate(parts(100), "t");
    publisher.commit();
  }
  // Memory without a layout, as held by a process that died too late.
  auto reader = std::make_unique<RpcClient>(enter(LockType::kRo));
  base::UniqueFd pinned =
      reader->export_allocation(reader->list_allocations().front().allocation_id);
  reader.reset();
  RpcClient writer = enter(LockType::kRw);
  writer.allocate(parts(100), "t");
  const os::Child waiter = os::fork_child([&] {
    pinned.reset();
    writer.set_deadline(soon());
    writer.allocate(parts(100), "t");
    return 0;
  });
  expect_out_of_memory();
  EXPECT_EQ(state().state, "RW");
  pinned.reset();
  EXPECT_EQ(waiter.wait(soon()), 0);
  EXPECT_EQ(failed_allocations(), 1);
}

TEST_F(Server, OutOfMemoryIsRefusedWhenItsTimeIsOver) {
  start({"--alloc-retry-interval", "5ms", "--alloc-retry-timeout", "20ms"});
  RpcClient writer = enter(LockType::kRw);
  writer.allocate(parts(200), "t");
  EXPECT_EQ(status_of([&] { writer.allocate(parts(100), "t"); }), ExitStatus::kTryAgain);
  EXPECT_EQ(writer.allocate(parts(40), "t").layout_slot, 1);
}

TEST_F(Server, ClientThatWaitsForMemoryAndLeavesIsForgotten) {
  start({"--alloc-retry-interval", "10s"});
  {
    RpcClient writer = enter(LockType::kRw);
    writer.allocate(parts(200), "t");
    const auto too_much = static_cast<std::int64_t>(parts(100));
    os::write_all(writer.fd(), encode_frame(AllocateRequest{too_much, "t"}), "say");
    expect_out_of_memory();
  }
  expect_soon([](const auto& now) { return now.state == "EMPTY"; });
}

// Whatever error a driver returns, the status never suggests a retry.
TEST_F(SimulatedServer, EveryFailureOfTheDeviceEndsTheServerWith70) {
  for (const char* fault : {"cuMemCreate:1=999", "cuMemCreate:1=46", "cuMemCreate:1=802",
                            "cuMemExportToShareableHandle:1=oom", "cuMemRelease:1=999"}) {
    set("GMS_SIM_FAULTS", fault);
    start();
    RpcClient writer = enter(LockType::kRw);
    try {
      const AllocationId id = writer.allocate(1, "t").allocation_id;
      writer.export_allocation(id);
      writer.free_allocation(id);
    } catch (const base::Error& error) {
      EXPECT_EQ(error.status(), ExitStatus::kUnavailable) << fault;
    }
    EXPECT_EQ(server_->wait(), 70) << fault;
  }
}

TEST_F(SimulatedServer, ClientsBeyondTheLimitWaitAndDescriptorsAreLeft) {
  const os::Child child = os::fork_child([&] {
    const rlimit few{60, 60};  // for 30 clients
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
    start();
    RpcClient writer = enter(LockType::kRw);
    std::vector<RawClient> idle;
    for (int i = 0; i < 35; ++i) idle.emplace_back(socket_);
    // Accepted clients are served, and the device has descriptors left.
    const AllocationId id = writer.allocate(1, "t").allocation_id;
    if (!writer.export_allocation(id).valid()) return 2;
    idle.clear();
    // Until the server has noticed their end, it may refuse one more of this process.
    for (const Deadline deadline = soon(); !deadline.expired();) {
      try {
        return state().state == "RW" ? 0 : 3;
      } catch (const base::Error&) {
        continue;
      }
    }
    return 4;
  });
  EXPECT_EQ(child.wait(soon()), 0);
}

TEST_F(SimulatedServer, HangingDeviceHoldsUpOnlyWhoNeedsIt) {
  set("GMS_SIM_FAULTS", "cuMemCreate:1=hang");
  start();
  RpcClient writer = enter(LockType::kRw);
  writer.set_deadline(Deadline::after(std::chrono::milliseconds(1)));
  EXPECT_EQ(status_of([&] { writer.allocate(1, "t"); }), ExitStatus::kTryAgain);
  EXPECT_EQ(state().state, "RW");
  EXPECT_EQ(connect().event_history().size(), 1u);
}

// Without timing: the server finds both requests at once, and answers the short one while it
// processes the long one. It has no descriptor store, because it would wait for that in any case.
TEST_F(SimulatedServer, OthersAreAnsweredWhileALongLayoutIsCommitted) {
  const os::Pipe never;
  const os::Child child = os::fork_child([&] {
    ServerCounters counters;
    ServerConfig config;
    config.driver = cuda::Driver::open("sim");
    config.device = cuda::device_info(*config.driver, base::DeviceOrdinal(0));
    config.listener = os::listen_unix(socket_, 0600);
    config.stop_fd = never.reader.get();
    config.counters = &counters;
    run_server(std::move(config), [] {});
    return 0;
  });
  static_cast<void>(state());  // waits until it is there
  const RawClient writer(socket_);
  ASSERT_TRUE(writer.ask<HandshakeResponse>(HandshakeRequest{"rw", std::nullopt}).success);
  const AllocationId id =
      writer.ask<AllocateResponse>(AllocateRequest{kGranule, "t"}).allocation_id;
  MetadataPutManyRequest put;
  for (int i = 0; i < 100; ++i) {
    MetadataRecord& one = put.entries.emplace_back();
    one.key = std::to_string(i);
    one.allocation_id = id;
    one.value.data.assign(100'000, 'v');
  }
  ASSERT_TRUE(writer.ask<MetadataPutManyResponse>(put).success);
  const RawClient other(socket_);
  ASSERT_EQ(::kill(child.pid(), SIGSTOP), 0);
  wait_until_stopped(child.pid());
  writer.say(encode_frame(CommitRequest{}));
  other.say(encode_frame(GetRuntimeStateRequest{}));
  ASSERT_EQ(::kill(child.pid(), SIGCONT), 0);
  EXPECT_EQ(decode_message<GetRuntimeStateResponse>(other.receive()).state, "RW");
  EXPECT_TRUE(decode_message<CommitResponse>(writer.receive()).success);
  EXPECT_EQ(state().state, "COMMITTED");
  child.signal(SIGKILL);
  ASSERT_TRUE(child.wait(soon()));
}

// Invalid elements would end the connection if they were decoded.
TEST_F(Server, ABatchThatIsTooLongIsRefusedByItsCount) {
  start();
  const RawClient writer(socket_);
  ASSERT_TRUE(writer.ask<HandshakeResponse>(HandshakeRequest{"rw", std::nullopt}).success);
  for (const auto& [type, list] : {std::pair("allocate_many_request", "allocations"),
                                   std::pair("metadata_put_many_request", "entries")}) {
    writer.say(list_of_nothings(type, list, 65537));
    const auto refused = decode_message<ErrorResponse>(writer.receive());
    EXPECT_EQ(refused.error,
              "a list of 65537 " + std::string(list) + ": at most 65536 are allowed");
    EXPECT_EQ(refused.code, base::to_int(ExitStatus::kBadData));
  }
  EXPECT_TRUE(writer.ask<CommitResponse>(CommitRequest{}).success);
}

TEST_F(Server, TerminationLetsClientsGoAndExitsWith0) {
  start();
  publish(1);
  RpcClient reader = enter(LockType::kRo);
  const RawClient waiting(socket_);
  waiting.say(encode_frame(HandshakeRequest{"rw", std::nullopt}));
  EXPECT_EQ(server_->terminate(), 0);
  EXPECT_EQ(status_of([&] { reader.lock_state(); }), ExitStatus::kUnavailable);
  EXPECT_EQ(waiting.hear_all(), "");
}

}  // namespace
}  // namespace fo::gms
