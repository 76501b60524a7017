#include "gms/stat/stat.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "gms/client/rpc_client.h"
#include "gms/fake_server.h"
#include "gms/gms_process.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::ExitStatus;
using nlohmann::json;
using test::status_of;
using testing::HasSubstr;
using testing::Not;

constexpr StatRequest kList{.events = false, .list = true};

Deadline in_50ms() { return Deadline::after(std::chrono::milliseconds(50)); }

class StatOfServer : public OneServer {
 protected:
  [[nodiscard]] Stat stat(const StatRequest& request = {}) const {
    return read_stat(socket_, request, soon());
  }
};

TEST_F(StatOfServer, NothingPublished) {
  start();
  const Stat stat = this->stat();
  EXPECT_EQ(stat.state.state, "EMPTY");
  EXPECT_FALSE(stat.events);
  EXPECT_FALSE(stat.listing);
  const json out = json::parse(to_json(stat));
  EXPECT_EQ(out["committed"], false);
  EXPECT_EQ(out["has_rw_session"], false);
  EXPECT_EQ(out["ro_session_count"], 0);
  EXPECT_EQ(out["waiting_writers"], 0);
  EXPECT_EQ(out["allocation_count"], 0);
  EXPECT_EQ(out["memory_layout_hash"], "");
  EXPECT_FALSE(out.contains("events"));
  EXPECT_FALSE(out.contains("allocations"));
  EXPECT_EQ(this->stat(kList).not_listed, "nothing is published");
}

TEST_F(StatOfServer, ListsAllocationsAndTensorsAndGivesTheLockBack) {
  start();
  RpcClient rpc = enter(LockType::kRw);
  rpc.allocate(1000, "first");
  rpc.free_allocation(rpc.allocate(1000, "gone").allocation_id);
  const AllocationId id = rpc.allocate(3 << 20, "last").allocation_id;
  rpc.put_metadata("model.w", id, 512, R"({"dtype": "torch.bfloat16", "shape": [2, 3]})");
  rpc.put_metadata("odd\x1b[31m\xff", id, 0, "\xff\xfe");
  rpc.commit();

  const Stat stat = read_stat(socket_, {.events = true, .list = true}, soon());
  ASSERT_TRUE(stat.listing) << stat.not_listed;
  EXPECT_EQ(stat.listing->memory_layout_hash, stat.state.memory_layout_hash);
  ASSERT_EQ(stat.listing->allocations.size(), 2u);
  EXPECT_EQ(stat.listing->allocations[1].layout_slot, 2u);
  ASSERT_EQ(stat.listing->tensors.size(), 2u);
  EXPECT_EQ(stat.listing->tensors[0].rank, 1u);

  const json out = json::parse(to_json(stat));
  EXPECT_EQ(out["allocations"][1]["allocation_id"], id.value());
  EXPECT_EQ(out["allocations"][1]["aligned_size"], 4 << 20);
  EXPECT_EQ(out["tensors"][0]["key"], "model.w");
  EXPECT_EQ(out["tensors"][0]["shape"], json({2, 3}));
  EXPECT_EQ(out["tensors"][0]["offset_bytes"], 512);
  EXPECT_TRUE(out["tensors"][1]["dtype"].is_null());
  EXPECT_EQ(out["events"].back()["kind"], "committed");

  const std::string text = to_text(stat);
  EXPECT_THAT(text, HasSubstr("\nstate             COMMITTED\n"));
  EXPECT_THAT(text, HasSubstr("\nallocations (2, sizes in bytes)\n  slot     size  aligned  tag"));
  EXPECT_THAT(text, HasSubstr("\n     2  3145728  4194304  last   " + id.value()));
  EXPECT_THAT(text, HasSubstr("\nallocated         6291456 bytes (6 MiB)\n"));
  EXPECT_EQ(cells_of(read_row({socket_, base::DeviceOrdinal(0), "weights"}, {}, soon()), "")[7],
            "6 MiB");
  EXPECT_THAT(text, HasSubstr("torch.bfloat16  [2, 3]"));
  EXPECT_THAT(text, HasSubstr("odd\\x1b[31m"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(this->stat().state.state, "COMMITTED");
}

class StatOfFake : public testing::Test {
 protected:
  void SetUp() override {
    GetRuntimeStateResponse state;
    state.state = "COMMITTED";
    state.committed = true;
    state.memory_layout_hash = LayoutHash("h");
    script_["get_runtime_state_request"] = encode_frame(state);
    script_["handshake_request"] = encode_frame(HandshakeResponse{true, true, "ro"});
    script_["get_memory_layout_hash_request"] =
        encode_frame(GetMemoryLayoutHashResponse{LayoutHash("h")});
    script_["list_allocations_request"] = encode_frame(ListAllocationsResponse{});
    script_["metadata_list_request"] = encode_frame(MetadataListResponse{{"a", "b"}});
    script_["get_lock_state_request"] = encode_frame(GetLockStateResponse{});
    script_["metadata_get_request"] =
        encode_frame(MetadataGetResponse{true, AllocationId("nowhere"), 0, Bytes{"{}"}});
  }
  test::TempDir dir_;
  std::string socket_ = dir_.path("gms_0_weights.sock");
  FakeServer::Script script_;
};

TEST_F(StatOfFake, TensorOfNoAllocationIsListedWithoutARank) {
  const FakeServer server(socket_, script_);
  const Stat stat = read_stat(socket_, kList, soon());
  ASSERT_TRUE(stat.listing);
  ASSERT_EQ(stat.listing->tensors.size(), 2u);
  EXPECT_EQ(stat.listing->tensors[0].rank, std::nullopt);
}

TEST_F(StatOfFake, ListingIsGivenUpWhenAWriterComesMeanwhile) {
  GetLockStateResponse state;
  state.waiting_writers = 1;
  script_["get_lock_state_request"] = encode_frame(state);
  const FakeServer server(socket_, script_);
  const Stat stat = read_stat(socket_, kList, soon());
  EXPECT_FALSE(stat.listing);
  EXPECT_EQ(stat.not_listed, "a writer waits for it");
}

TEST_F(StatOfFake, LockThatIsGoneWhenAskedForIsNotWaitedFor) {
  script_["handshake_request"] = encode_frame(HandshakeResponse{false, false, std::nullopt});
  const FakeServer server(socket_, script_);
  EXPECT_EQ(read_stat(socket_, kList, soon()).not_listed, "a writer was granted first");
}

TEST_F(StatOfFake, ServerThatStopsAnsweringAnywhereTimesOut) {
  for (const auto& [type, answer] : script_) {
    FakeServer::Script script = script_;
    script.erase(type);
    const FakeServer server(socket_, script);
    EXPECT_EQ(status_of([&] { read_stat(socket_, kList, in_50ms()); }), ExitStatus::kTryAgain)
        << type;
    std::filesystem::remove(socket_);
  }
}

TEST_F(StatOfFake, GarbageAnywhereIsAProtocolError) {
  for (const auto& [type, answer] : script_) {
    FakeServer::Script script = script_;
    script[type] = garbage();
    const FakeServer server(socket_, script);
    EXPECT_EQ(status_of([&] { read_stat(socket_, kList, soon()); }), ExitStatus::kProtocol) << type;
    std::filesystem::remove(socket_);
  }
}

TEST_F(StatOfFake, AllShowsTheLivingAndTheDeadInTheTimeThereIs) {
  const FakeServer living(socket_, script_);
  static_cast<void>(os::listen_unix(dir_.path("gms_1_weights.sock")));
  const FakeServer silent(dir_.path("gms_2_weights.sock"), {});
  const FakeServer last(dir_.path("gms_3_weights.sock"), script_);
  const auto rows = read_all_stats(dir_.path(), {}, Deadline::after(std::chrono::seconds(2)));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].status, ExitStatus::kOk);
  EXPECT_EQ(rows[1].status, ExitStatus::kUnavailable);
  EXPECT_EQ(rows[2].status, ExitStatus::kTryAgain);
  EXPECT_EQ(rows[3].status, ExitStatus::kOk);
  EXPECT_EQ(json::parse(to_json(rows[0]))["device"], 0);
  EXPECT_EQ(json::parse(to_json(rows[0]))["state"], "COMMITTED");
  EXPECT_THAT(json::parse(to_json(rows[1]))["error"], HasSubstr("Connection refused"));
  EXPECT_THAT(to_text(rows), HasSubstr("\n     2  weights  no answer"));
}

}  // namespace
}  // namespace fo::gms
