// Bundles that start and end concurrently. bats/gms-serve.bats tests a bundle alone.
#include "gms/bundle/serve.h"

#include <gtest/gtest.h>

#include <set>

#include "gms/client/rpc_client.h"
#include "gms/gms_process.h"
#include "gms/protocol/endpoint.h"

namespace fo::gms {
namespace {

namespace fs = std::filesystem;

class Bundle : public TestDevice {
 protected:
  [[nodiscard]] std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_)) {
      const std::string name = entry.path().filename();
      if (name != "sim" && !name.ends_with(".lock")) names.insert(name);
    }
    return names;
  }
  [[nodiscard]] std::string state_at(const std::string& socket) const {
    return RpcClient::connect(socket, soon(), RpcClient::Retry::kUntilTheDeadline)
        .runtime_state()
        .state;
  }
};

TEST_F(Bundle, OnlyTheDevicesAndTagsAskedFor) {
  GmsProcess bundle({"--socket-dir", dir_, "--devices", "1", "--tags", "weights"});
  ASSERT_TRUE(bundle.is_ready());
  EXPECT_EQ(state_at(weights_link(dir_, base::DeviceOrdinal(1))), "EMPTY");
  EXPECT_EQ(names().size(), 4u);
}

// NVML reports the GPU's UUID to Dynamo's clients, whatever slice they run in.
TEST_F(Bundle, TheOnlySliceOfAGpuIsFoundUnderItsUuid) {
  set("GMS_SIM_QUIRKS", "mig");
  const auto info = cuda::device_info(*cuda::Driver::open("sim"), base::DeviceOrdinal(1));
  ASSERT_NE(info.gpu_uuid, info.uuid);
  const std::string by_gpu = socket_path(dir_, info.gpu_uuid, "kv_cache");
  {
    GmsProcess one({"--socket-dir", dir_, "--devices", "1"});
    ASSERT_TRUE(one.is_ready());
    EXPECT_EQ(fs::read_symlink(by_gpu),
              fs::path(socket_path("", info.uuid, "kv_cache")).filename());
    EXPECT_EQ(state_at(by_gpu), "EMPTY");
    EXPECT_EQ(state_at(socket_path(dir_, info.gpu_uuid, "weights")), "EMPTY");
    EXPECT_EQ(one.terminate(), 0);
  }
  EXPECT_FALSE(fs::exists(by_gpu));
  // With two slices it would be ambiguous.
  GmsProcess two({"--socket-dir", dir_, "--devices", "0,1"});
  ASSERT_TRUE(two.is_ready());
  EXPECT_FALSE(fs::exists(by_gpu));
  EXPECT_EQ(state_at(socket_path(dir_, info.uuid, "weights")), "EMPTY");
}

TEST_F(Bundle, KilledParentIsReplacedAtOnce) {
  // Servers of the previous round may still be dying.
  for (int round = 0; round < 10; ++round) {
    GmsProcess bundle({"--socket-dir", dir_});
    ASSERT_TRUE(bundle.is_ready()) << round;
    bundle.child().signal(SIGKILL);
    EXPECT_EQ(bundle.wait(), 137);
  }
}

TEST_F(Bundle, TwoAtOnceOnOneSocketOneWins) {
  const std::vector<std::string> command{FO_BUILD_DIR "/bin/gms-serve", "-q", "--socket-path",
                                         path("gms.sock")};
  for (int round = 0; round < 10; ++round) {
    const os::Child left = os::spawn(command);
    const os::Child right = os::spawn(command);
    pollfd ended[]{{left.pidfd(), POLLIN, 0}, {right.pidfd(), POLLIN, 0}};
    ASSERT_EQ(::poll(ended, 2, soon().poll_timeout()), 1);
    const os::Child& loser = ended[0].revents != 0 ? left : right;
    const os::Child& winner = ended[0].revents != 0 ? right : left;
    EXPECT_EQ(loser.wait(soon()), 73);
    // The loser may end before the winner listens.
    EXPECT_EQ(state_at(path("gms.sock")), "EMPTY");
    winner.signal(SIGTERM);
    EXPECT_EQ(winner.wait(soon()), 0);
  }
}

}  // namespace
}  // namespace fo::gms
