#include "gms/client/probe.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "gms/client/rpc_client.h"
#include "gms/fake_server.h"
#include "gms/gms_process.h"
#include "gms/protocol/endpoint.h"
#include "support/failure.h"

namespace fo::gms {
namespace {

using base::ExitStatus;
using test::status_of;
using testing::HasSubstr;

class Probe : public TestDevice {
 protected:
  void SetUp() override {
    TestDevice::SetUp();
    probe_.socket_dir = dir_;
    probe_.tags = {"weights", "kv_cache"};
  }
  [[nodiscard]] std::string link(int device, const char* tag = "weights") const {
    return socket_link(dir_, base::DeviceOrdinal(device), tag);
  }
  static std::string answer(bool committed) {
    GetRuntimeStateResponse state;
    state.committed = committed;
    return encode_frame(state);
  }
  static FakeServer::Script committed(bool committed) {
    return {{"get_runtime_state_request", answer(committed)}};
  }
  SocketsProbe probe_;
};

TEST_F(Probe, BundleAnswers) {
  const GmsProcess bundle({"--socket-dir", dir_});
  ASSERT_TRUE(bundle.is_ready());
  SocketsAnswer answer = probe_sockets(probe_);
  EXPECT_TRUE(answer.yes) << answer.reason;
  EXPECT_EQ(answer.sockets, 4u);
  EXPECT_EQ(to_json(answer), R"({"result":"yes","sockets":4})");
  probe_.devices = {base::DeviceOrdinal(0), base::DeviceOrdinal(1), base::DeviceOrdinal(2)};
  answer = probe_sockets(probe_);
  EXPECT_FALSE(answer.yes);
  EXPECT_THAT(answer.reason, HasSubstr(link(2)));
  EXPECT_THAT(nlohmann::json::parse(to_json(answer))["reason"], HasSubstr(link(2)));
}

TEST_F(Probe, CommittedAsksForAPublishedLayout) {
  probe_.tags = {"weights"};
  probe_.committed = true;
  const FakeServer published(link(0), committed(true));
  EXPECT_TRUE(probe_sockets(probe_).yes);
  const FakeServer empty(link(1), committed(false));
  const SocketsAnswer answer = probe_sockets(probe_);
  EXPECT_FALSE(answer.yes);
  EXPECT_EQ(answer.reason, "GMS at '" + link(1) + "': nothing is published");
}

TEST_F(Probe, NothingInTheFolderIsANo) {
  EXPECT_THAT(probe_sockets(probe_).reason, HasSubstr("none found"));
  probe_.socket_dir += "/absent";
  EXPECT_THAT(probe_sockets(probe_).reason, HasSubstr("none found"));
}

TEST_F(Probe, DeviceThatLacksATagIsANo) {
  const FakeServer only(link(0), committed(true));
  EXPECT_THAT(probe_sockets(probe_).reason, HasSubstr("gms_0_kv_cache.sock"));
}

TEST_F(Probe, SocketThatOnlyExistsIsANo) {
  probe_.tags = {"weights"};
  static_cast<void>(os::listen_unix(link(0)));
  EXPECT_THAT(probe_sockets(probe_).reason, HasSubstr("Connection refused"));
}

TEST_F(Probe, ServerThatHangsIsANoAfterASecond) {
  probe_.tags = {"weights"};
  const FakeServer silent(link(0), {});
  EXPECT_THAT(probe_sockets(probe_).reason, HasSubstr("timed out"));
}

TEST_F(Probe, GarbageAndRefusalsAreANo) {
  probe_.tags = {"weights"};
  probe_.devices = {base::DeviceOrdinal(0)};
  {
    const FakeServer server(link(0), {{"get_runtime_state_request", garbage()}});
    EXPECT_FALSE(probe_sockets(probe_).yes);
  }
  std::filesystem::remove(link(0));
  const FakeServer server(
      link(0), {{"get_runtime_state_request", encode_frame(ErrorResponse{"not today", 0})}});
  EXPECT_THAT(probe_sockets(probe_).reason, HasSubstr("not today"));
}

TEST_F(Probe, WaitGoesOnUntilTheServersAnswer) {
  probe_.wait = std::chrono::seconds(20);
  SocketsAnswer answer;
  std::thread prober([&] { answer = probe_sockets(probe_); });
  const GmsProcess bundle({"--socket-dir", dir_, "--devices", "0"});
  prober.join();
  EXPECT_TRUE(answer.yes) << answer.reason;
  EXPECT_EQ(answer.sockets, 2u);
}

TEST_F(Probe, WaitEndsWithANo) {
  probe_.wait = std::chrono::milliseconds(120);
  EXPECT_FALSE(probe_sockets(probe_).yes);
}

TEST_F(Probe, PathThatIsTooLongIsAnErrorAtOnce) {
  probe_.socket_dir = dir_ + "/" + std::string(120, 'x');
  probe_.devices = {base::DeviceOrdinal(0)};
  probe_.wait = std::chrono::hours(1);
  EXPECT_EQ(status_of([&] { probe_sockets(probe_); }), ExitStatus::kUsage);
}

class RemapProbed : public OneServer {
 protected:
  RemapAnswer ask(const LayoutHash& expect_hash = {}) const {
    RemapProbe probe;
    probe.socket = socket_;
    probe.expect_hash = expect_hash;
    probe.timeout = timeout_;
    probe.wait = wait_;
    return probe_remap(probe);
  }
  void publish() const {
    RpcClient rpc = enter(LockType::kRw);
    static_cast<void>(rpc.allocate(1000, "t"));
    rpc.commit();
  }

  base::Duration timeout_ = std::chrono::seconds(20);
  base::Duration wait_{};
};

TEST_F(RemapProbed, APublishedLayoutIsAYes) {
  start();
  publish();
  const RemapAnswer answer = ask();
  EXPECT_TRUE(answer.yes) << answer.reason;
  EXPECT_EQ(answer.memory_layout_hash.value().size(), 64u);
  EXPECT_EQ(to_json(answer), R"({"memory_layout_hash":")" + answer.memory_layout_hash.value() +
                                 R"(","result":"yes"})");
  EXPECT_TRUE(ask(answer.memory_layout_hash).yes);
}

TEST_F(RemapProbed, AnotherLayoutIsANo) {
  start();
  publish();
  const RemapAnswer answer = ask(LayoutHash(std::string(64, 'a')));
  EXPECT_FALSE(answer.yes);
  EXPECT_THAT(answer.reason, HasSubstr("instead of aaaa"));
  EXPECT_EQ(nlohmann::json::parse(to_json(answer))["memory_layout_hash"],
            answer.memory_layout_hash.value());
}

TEST_F(RemapProbed, NoServerNothingPublishedASilentOneAndGarbageAreANo) {
  EXPECT_THAT(ask().reason, HasSubstr("No such file or directory"));
  start();
  // On a loaded machine the shortest wait may end before the query.
  std::string reason;
  for (const int limit : {100, 1000, 10'000}) {
    timeout_ = std::chrono::milliseconds(limit);
    reason = ask().reason;
    if (reason.find("timed out") == std::string::npos) break;
  }
  EXPECT_THAT(reason, HasSubstr("Timeout waiting for lock ro"));
  timeout_ = std::chrono::milliseconds(100);
  EXPECT_EQ(nlohmann::json::parse(to_json(ask()))["memory_layout_hash"], nullptr);
  server_.reset();
  std::filesystem::remove(socket_);
  {
    const FakeServer silent(socket_, {});
    EXPECT_FALSE(ask().yes);
  }
  std::filesystem::remove(socket_);
  const FakeServer server(socket_, {{"handshake_request", garbage()}});
  timeout_ = std::chrono::seconds(20);
  EXPECT_FALSE(ask().yes);
}

TEST_F(RemapProbed, WaitsForALayout) {
  start();
  timeout_ = std::chrono::milliseconds(20);
  wait_ = std::chrono::seconds(20);
  RemapAnswer answer;
  std::thread prober([&] { answer = ask(); });
  publish();
  prober.join();
  EXPECT_TRUE(answer.yes) << answer.reason;
}

TEST_F(RemapProbed, APathThatIsTooLongIsAnErrorAtOnce) {
  socket_ = "/" + std::string(120, 'x');
  wait_ = std::chrono::hours(1);
  EXPECT_EQ(status_of([&] { ask(); }), ExitStatus::kUsage);
}

}  // namespace
}  // namespace fo::gms
