#include "gms/client/rpc_client.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gms/fake_server.h"
#include "gms/gms_process.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::gms {
namespace {
using base::ExitStatus;
using Call = std::function<void(RpcClient&)>;

AllocateResponse allocated(std::int64_t size, std::int64_t aligned_size, std::int64_t slot = 0) {
  return {AllocationId("a"), size, aligned_size, slot};
}

GetAllocationResponse listed(std::int64_t size, std::int64_t aligned_size, std::int64_t slot = 0) {
  GetAllocationResponse answer;
  answer.allocation_id = AllocationId("a");
  answer.size = size;
  answer.aligned_size = aligned_size;
  answer.layout_slot = slot;
  return answer;
}

MetadataRecord record(const std::string& key, std::int64_t offset) {
  MetadataRecord one;
  one.key = key;
  one.offset_bytes = offset;
  return one;
}

/// A client's reaction to a server with invalid answers.
class LyingServer : public testing::Test {
 protected:
  /// `answer` is sent for a request of this type. Expects kProtocol and the reason.
  template <typename Answer>
  void expect_lie(std::string_view request, const Answer& answer, const Call& call,
                  const std::string& reason) {
    const test::Failure failure = failure_after(request, encode_frame(answer), call);
    EXPECT_EQ(failure.status, ExitStatus::kProtocol) << failure.message;
    EXPECT_EQ(failure.message, reason);
  }
  test::Failure failure_after(std::string_view request, const std::string& frame,
                              const Call& call) {
    HandshakeResponse handshake{true, true, "rw"};
    handshake.extensions = extensions_;
    FakeServer::Script script{{std::string(HandshakeRequest::kType), encode_frame(handshake)}};
    script.insert_or_assign(std::string(request), frame);
    const FakeServer server(socket_, std::move(script));
    RpcClient rpc = RpcClient::connect(socket_, soon());
    const test::Failure failure = test::failure_of([&] {
      rpc.request_lock(LockType::kRw, soon());
      call(rpc);
    });
    std::filesystem::remove(socket_);
    return failure;
  }
  [[nodiscard]] std::string of_server(const std::string& reason) const {
    return "GMS at '" + socket_ + "'" + reason;
  }

  test::TempDir folder_;
  const std::string socket_ = folder_.path("s.sock");
  std::vector<std::string> extensions_;
};

TEST_F(LyingServer, SizesAndSlotsThatCanNotBeAreRefused) {
  const std::string reason = "GMS allocation 'a': invalid size or slot";
  for (const AllocateResponse& answer : {allocated(-1, 8), allocated(8, 0), allocated(8, -8),
                                         allocated(8, 4), allocated(8, 8, -1)}) {
    expect_lie(
        AllocateRequest::kType, answer, [](RpcClient& rpc) { rpc.allocate(8, "t"); }, reason);
  }
  for (const GetAllocationResponse& answer :
       {listed(-1, 8), listed(8, 0), listed(8, 4), listed(8, 8, -1)}) {
    expect_lie(
        GetAllocationRequest::kType, answer,
        [](RpcClient& rpc) { rpc.get_allocation(AllocationId("a")); }, reason);
    expect_lie(
        ListAllocationsRequest::kType, ListAllocationsResponse{{answer}},
        [](RpcClient& rpc) { rpc.list_allocations(); }, reason);
  }
  extensions_ = {std::string(kAllocateMany)};
  const Call many = [](RpcClient& rpc) { rpc.allocate_many({8, 8}, "t"); };
  expect_lie(AllocateManyRequest::kType,
             AllocateManyResponse{{allocated(8, 8), allocated(8, 8, -1)}}, many, reason);
  expect_lie(AllocateManyRequest::kType, AllocateManyResponse{{allocated(8, 8)}}, many,
             of_server(": 1 allocation instead of 2"));
}

TEST_F(LyingServer, AGrantOfNothingKnownIsRefused) {
  const std::vector<std::pair<std::optional<std::string>, std::string>> grants{
      {std::nullopt, "'nothing'"}, {"both", "'both'"}};
  for (const auto& [grant, shown] : grants) {
    expect_lie(
        HandshakeRequest::kType, HandshakeResponse{true, true, grant}, [](RpcClient&) {},
        of_server(": granted " + shown));
  }
}

TEST_F(LyingServer, ExportsWithoutDescriptorsOrOfAnotherAllocationAreRefused) {
  expect_lie(
      ExportAllocationRequest::kType, ExportAllocationResponse{},
      [](RpcClient& rpc) { rpc.export_allocation(AllocationId("a")); },
      of_server(": export_allocation_response came with 0 descriptors"));
  extensions_ = {std::string(kExportLayout)};
  ExportLayoutResponse answer;
  for (int allocations = 0; allocations < 2; ++allocations) {
    expect_lie(
        ExportLayoutRequest::kType, answer,
        [](RpcClient& rpc) {
          rpc.export_from({{AllocationId("a"), 8, 8, "t", 0}}, 0);
        },
        of_server(": export_layout_response came with 0 descriptors"));
    answer.allocations.push_back(listed(8, 8));
  }
}

TEST_F(LyingServer, MetadataThatCanNotBeIsRefused) {
  const Call get = [](RpcClient& rpc) { rpc.get_metadata("k"); };
  for (const MetadataGetResponse& answer :
       {MetadataGetResponse{true, std::nullopt, 0, Bytes{"v"}},
        MetadataGetResponse{true, AllocationId("a"), std::nullopt, Bytes{"v"}},
        MetadataGetResponse{true, AllocationId("a"), -1, Bytes{"v"}},
        MetadataGetResponse{true, AllocationId("a"), 0, std::nullopt}}) {
    expect_lie(MetadataGetRequest::kType, answer, get, of_server(": incomplete metadata for 'k'"));
  }
  extensions_ = {std::string(kMetadataDump)};
  const Call fetch = [](RpcClient& rpc) { rpc.fetch_metadata(); };
  expect_lie(MetadataDumpRequest::kType, MetadataDumpResponse{{record("k", -1)}, false}, fetch,
             of_server(": invalid metadata for 'k'"));
  // Keys must ascend; otherwise the pages would never end.
  expect_lie(MetadataDumpRequest::kType,
             MetadataDumpResponse{{record("b", 0), record("a", 0)}, false}, fetch,
             of_server(": invalid metadata for 'a'"));
  expect_lie(MetadataDumpRequest::kType, MetadataDumpResponse{{record("k", 0)}, true}, fetch,
             of_server(": invalid metadata for 'k'"));
  expect_lie(MetadataDumpRequest::kType, MetadataDumpResponse{{}, true}, fetch,
             of_server(": endless metadata"));
}

TEST_F(LyingServer, AnAnswerThatIsTooLongIsNotReadToItsEnd) {
  const test::Failure failure = failure_after(GetMemoryLayoutHashRequest::kType, "\xff\xff\xff\xff",
                                              [](RpcClient& rpc) { rpc.layout_hash(); });
  EXPECT_EQ(failure.status, ExitStatus::kProtocol);
  EXPECT_EQ(failure.message,
            "query the GMS at '" + socket_ + "': invalid answer size: 4294967295 bytes");
}

// Like Dynamo's server, without a reason.
TEST_F(LyingServer, WhatDidNotSucceedIsARefusal) {
  const auto expect_refusal = [this](std::string_view request, const auto& answer, const Call& call,
                                     const std::string& reason) {
    const test::Failure failure = failure_after(request, encode_frame(answer), call);
    EXPECT_EQ(failure.status, ExitStatus::kBadData);
    EXPECT_EQ(failure.message, of_server(" refused " + reason));
  };
  expect_refusal(
      CommitRequest::kType, CommitResponse{}, [](RpcClient& rpc) { rpc.commit(); }, "to commit");
  expect_refusal(
      CommitLayoutRequest::kType, CommitLayoutResponse{}, [](RpcClient& rpc) { rpc.seal(); },
      "to seal the layout");
  expect_refusal(
      MetadataPutRequest::kType, MetadataPutResponse{},
      [](RpcClient& rpc) { rpc.put_metadata("k", AllocationId("a"), 0, "v"); }, "the metadata 'k'");
  extensions_ = {std::string(kMetadataPutMany)};
  expect_refusal(
      MetadataPutManyRequest::kType, MetadataPutManyResponse{},
      [](RpcClient& rpc) {
        rpc.put_metadata_many({{"k", {AllocationId("a"), 0, "v"}}});
      },
      "the metadata");
}

}  // namespace
}  // namespace fo::gms
