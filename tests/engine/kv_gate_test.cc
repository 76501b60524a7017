#include "engine/kv_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/device_gate.h"
#include "gms/client/rpc_client.h"
#include "gms/fake_server.h"
#include "gms/gms_process.h"
#include "loop/children.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "support/failure.h"

namespace fo::engine {
namespace {

using base::ExitStatus;
using gms::Grant;
using gms::LockType;
using gms::RpcClient;
using test::failure_of;
using test::in_ms;
using test::soon;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

using base::kMiB;

class SimulatedKvGateTest : public gms::OneServer {
 protected:
  void SetUp() override {
    OneServer::SetUp();
    start();
  }
  // An engine with this much KV memory, until it is destroyed.
  [[nodiscard]] RpcClient engine(base::ByteCount bytes) const {
    RpcClient client = enter(LockType::kRw);
    client.allocate(bytes, "kv_cache");
    return client;
  }
  [[nodiscard]] std::vector<GmsPlace> places() const {
    return {{socket_, base::DeviceOrdinal(3), "kv_cache"}};
  }
  [[nodiscard]] std::map<base::DeviceOrdinal, base::ByteCount> settle(
      const base::Deadline& deadline = soon()) {
    KvGate gate(places());
    return loop_.run(gate.settle(deadline));
  }

  test::TestLoop loop_;
};

TEST_F(SimulatedKvGateTest, WhatTheLastEngineHadIsWhatTheNextOneWants) {
  EXPECT_THAT(settle(), IsEmpty()) << "nobody had any";
  { const RpcClient first = engine(6 * kMiB); }
  EXPECT_THAT(settle(), ElementsAre(Pair(base::DeviceOrdinal(3), 6 * kMiB)));
  { const RpcClient second = engine(10 * kMiB); }
  EXPECT_THAT(settle(), ElementsAre(Pair(base::DeviceOrdinal(3), 10 * kMiB)));
  // An engine without memory changes nothing.
  { const RpcClient none = enter(LockType::kRw); }
  EXPECT_THAT(settle(), ElementsAre(Pair(base::DeviceOrdinal(3), 10 * kMiB)));
}

TEST_F(SimulatedKvGateTest, AnEngineThatStillHoldsItIsWaitedFor) {
  auto holder = std::make_unique<RpcClient>(engine(4 * kMiB));
  const auto failure = failure_of([&] { static_cast<void>(settle(in_ms(50))); });
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
  EXPECT_EQ(failure.message,
            "wait for the KV memory at '" + socket_ + "': an engine still holds it");
  KvGate gate(places());
  std::optional<std::map<base::DeviceOrdinal, base::ByteCount>> settled;
  loop::spawn(loop_.io(), loop::store(gate.settle(soon()), settled));
  loop_.run_ready();
  holder.reset();
  loop_.run_until([&] { return settled.has_value(); });
  EXPECT_THAT(*settled, ElementsAre(Pair(base::DeviceOrdinal(3), 4 * kMiB)));
}

TEST_F(SimulatedKvGateTest, KvMemoryThatOutlivesItsEngineIsNotWaitedFor) {
  {
    RpcClient first = engine(4 * kMiB);
    static_cast<void>(first.seal());
  }
  EXPECT_THAT(settle(), IsEmpty());
}

TEST_F(SimulatedKvGateTest, NoServerOneThatDoesNotAnswerAndOneThatDoesNotTellAreNone) {
  server_.reset();
  std::filesystem::remove(socket_);
  EXPECT_THAT(settle(), IsEmpty());
  KvGate gate(places());
  EXPECT_FALSE(loop_.run(gate.is_served()));
  // Like Dynamo's server: without the sizes.
  const gms::LockState state{.state = "EMPTY"};
  const gms::FakeServer other(socket_,
                              {{"get_runtime_state_request",
                                gms::encode_frame(gms::GetRuntimeStateResponse{state, 0, {}})}});
  testing::internal::CaptureStderr();
  EXPECT_THAT(settle(), IsEmpty());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("does not report how much KV memory it released"));
}

// The memory must be free on the device, not only released by the GMS.
TEST_F(SimulatedKvGateTest, TheDeviceIsAskedForWhatTheGmsSays) {
  set("FO_LIBEXEC_DIR", FO_BUILD_DIR "/libexec/fo");
  loop::Children children(loop_.io());
  const std::vector<GmsPlace> here{{socket_, base::DeviceOrdinal(0), "kv_cache"}};
  { const RpcClient first = engine(parts(128)); }
  {
    DeviceGate gate(children, {base::DeviceOrdinal(0)}, std::nullopt, here);
    EXPECT_TRUE(loop_.run(gate.wait(soon())));
    EXPECT_THAT(gate.wanted(), ElementsAre(parts(128)));
  }
  // Memory of another engine, in another GMS.
  const std::string elsewhere = path("other.sock");
  const gms::GmsProcess other({"--socket-path", elsewhere});
  RpcClient hog = RpcClient::connect(elsewhere, soon());
  ASSERT_EQ(hog.request_lock(LockType::kRw, soon()).grant, Grant::kRw);
  hog.allocate(parts(200), "x");
  DeviceGate gate(children, {base::DeviceOrdinal(0)}, std::nullopt, here);
  const auto failure = failure_of([&] { loop_.run(gate.wait(in_ms(300))); });
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
  EXPECT_THAT(failure.message, HasSubstr(", 128 MiB needed"));
  // A configured size takes precedence over the GMS.
  DeviceGate given(children, {base::DeviceOrdinal(0)}, kMiB, here);
  EXPECT_TRUE(loop_.run(given.wait(soon())));
}

}  // namespace
}  // namespace fo::engine
