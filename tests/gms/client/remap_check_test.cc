#include "gms/client/remap_check.h"

#include <gmock/gmock.h>

#include <fstream>
#include <thread>

#include "gms/client/map_check.h"
#include "gms/client/rpc_client.h"
#include "gms/fake_server.h"
#include "gms/gms_process.h"
#include "os/file/file.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::ExitStatus;
using test::status_of;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kHash(64, 'a');
const std::string kOtherHash(64, 'b');

Deadline in_a_moment() { return Deadline::after(std::chrono::milliseconds(100)); }

class RemapChecked : public OneServer {
 protected:
  void publish(const std::vector<base::ByteCount>& sizes) const {
    RpcClient rpc = enter(LockType::kRw);
    for (const base::ByteCount size : sizes) rpc.allocate(size, "t");
    rpc.commit();
  }
  RemapCheck check(bool map = false, Deadline deadline = soon()) const {
    RemapCheckRequest request;
    request.socket = socket_;
    request.map = map;
    return check_remap(request, deadline);
  }
};

class SimulatedRemapChecked : public RemapChecked {};

TEST_F(RemapChecked, LayoutPublishedInTimeIsWaitedFor) {
  start();
  RpcClient holder = enter(LockType::kRw);
  RemapCheck found;
  std::thread checker([&] { found = check(); });
  holder.allocate(1, "t");
  holder.commit();
  checker.join();
  EXPECT_EQ(found.outcome.result, RemapResult::kOk) << found.outcome.reason;
}

TEST_F(RemapChecked, ServerThatGoesAwayMeanwhileIsNoServer) {
  start();
  RemapCheck found;
  std::thread checker([&] { found = check(false, Deadline::never()); });
  EXPECT_EQ(server_->terminate(), 0);
  checker.join();
  EXPECT_EQ(found.outcome.result, RemapResult::kConnectionFailed);
}

TEST_F(RemapChecked, MapReadsEveryAllocation) {
  start();
  publish({1, 3 << 20});
  const RemapCheck check = this->check(true);
  EXPECT_EQ(check.outcome.result, RemapResult::kOk) << check.outcome.reason;
  EXPECT_TRUE(check.mapped);
  EXPECT_THAT(to_text(check), HasSubstr("mapped and read"));
}

TEST_F(SimulatedRemapChecked, MapThatFailsIsAnErrorOfTheGpu) {
  start();
  publish({1});
  for (const char* function : {"cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess",
                               "cuMemcpyDtoH", "cuMemAddressReserve"}) {
    set("GMS_SIM_FAULTS", std::string(function) + ":1=unknown");
    EXPECT_EQ(status_of([&] { check(true); }), ExitStatus::kSoftware) << function;
  }
  set("GMS_SIM_FAULTS", "cuMemMap:1=kill");
  EXPECT_EQ(status_of([&] { check(true); }), ExitStatus::kSoftware);
}

TEST_F(RemapChecked, MapAndReadHasTheOutcomesOfTheCheck) {
  start();
  publish({5 << 20});
  const auto driver = cuda::Driver::open(test::driver());
  const auto device = cuda::device_info(*driver, base::DeviceOrdinal(0));
  RemapCheckRequest any;
  any.socket = socket_;
  RemapCheckRequest other = any;
  other.expect_hash = LayoutHash(kHash);
  const RemapCheck read = map_and_read(driver, device, any, soon());
  EXPECT_EQ(read.outcome.result, RemapResult::kOk) << read.outcome.reason;
  EXPECT_TRUE(read.mapped);
  EXPECT_EQ(read.bytes, 6u << 20);
  EXPECT_EQ(map_and_read(driver, device, other, soon()).outcome.result, RemapResult::kStaleLayout);
  {
    const RpcClient holder = enter(LockType::kRw);
    EXPECT_EQ(map_and_read(driver, device, any, in_a_moment()).outcome.result,
              RemapResult::kTimedOut);
  }
  server_.reset();
  EXPECT_EQ(map_and_read(driver, device, any, soon()).outcome.result,
            RemapResult::kConnectionFailed);
}

class RemapCheckOfFake : public RemapChecked {
 protected:
  void SetUp() override {
    RemapChecked::SetUp();
    script_["handshake_request"] = encode_frame(HandshakeResponse{true, true, "ro"});
    script_["get_memory_layout_hash_request"] =
        encode_frame(GetMemoryLayoutHashResponse{LayoutHash(kHash)});
    script_["list_allocations_request"] = encode_frame(ListAllocationsResponse{});
  }
  FakeServer::Script script_;
};

TEST_F(RemapCheckOfFake, ServerThatStopsAnsweringAnywhereTimesOut) {
  for (const auto& [type, answer] : script_) {
    FakeServer::Script script = script_;
    script.erase(type);
    const FakeServer server(socket_, script);
    EXPECT_EQ(check(false, in_a_moment()).outcome.result, RemapResult::kTimedOut) << type;
    std::filesystem::remove(socket_);
  }
}

TEST_F(RemapCheckOfFake, GarbageAndRefusalsBreakTheProtocol) {
  const std::string refusal = encode_frame(ErrorResponse{"no", 0});
  for (const auto& [type, answer] : script_) {
    for (const std::string& bad : {garbage(), refusal}) {
      FakeServer::Script script = script_;
      script[type] = bad;
      const FakeServer server(socket_, script);
      EXPECT_EQ(status_of([&] { check(); }), ExitStatus::kProtocol) << type;
      std::filesystem::remove(socket_);
    }
  }
}

TEST_F(RemapCheckOfFake, HashThatIsNoneBreaksTheProtocol) {
  script_["get_memory_layout_hash_request"] =
      encode_frame(GetMemoryLayoutHashResponse{LayoutHash("short")});
  const FakeServer server(socket_, script_);
  EXPECT_EQ(status_of([&] { check(); }), ExitStatus::kProtocol);
}

TEST(RemapResults, StandForExitStatuses) {
  EXPECT_EQ(exit_status(RemapResult::kOk), ExitStatus::kOk);
  EXPECT_EQ(exit_status(RemapResult::kStaleLayout), ExitStatus::kBadData);
  EXPECT_EQ(exit_status(RemapResult::kTimedOut), ExitStatus::kTryAgain);
  EXPECT_EQ(exit_status(RemapResult::kConnectionFailed), ExitStatus::kUnavailable);
  EXPECT_EQ(parse_exit_status(75), RemapResult::kTimedOut);
  EXPECT_EQ(parse_exit_status(70), std::nullopt);
}

class HashFile : public testing::Test {
 protected:
  test::TempDir dir_;
  std::string path_ = dir_.path("hash");
};

TEST_F(HashFile, ReadsWhatWasWritten) {
  write_hash_file(path_, {LayoutHash(kHash), LayoutHash(kOtherHash)});
  EXPECT_THAT(read_hash_file(path_, 2), ElementsAre(LayoutHash(kHash), LayoutHash(kOtherHash)));
  EXPECT_EQ(os::read_file(path_, 200), kHash + "\n" + kOtherHash + "\n");
}

TEST_F(HashFile, LastNewlineMayBeMissing) {
  std::ofstream(path_) << kHash;
  EXPECT_THAT(read_hash_file(path_, 1), ElementsAre(LayoutHash(kHash)));
}

TEST_F(HashFile, AbsentIsNoInput) {
  EXPECT_EQ(status_of([&] { read_hash_file(path_, 1); }), ExitStatus::kNoInput);
}

TEST_F(HashFile, AnythingElseIsBadData) {
  for (const std::string& text :
       {std::string(), std::string("\n"), kHash.substr(1), kHash + "a", kHash + "\r\n",
        kHash + "\n\n", std::string(64, 'A'), std::string(64, 'g'), kHash + "\n" + kOtherHash}) {
    std::ofstream(path_, std::ios::trunc) << text;
    EXPECT_EQ(status_of([&] { read_hash_file(path_, 1); }), ExitStatus::kBadData) << text;
  }
}

}  // namespace
}  // namespace fo::gms
