// The bundle: a process per device and tag, and what its parent keeps in order.
#include "gms/serve.h"

#include <gmock/gmock.h>
#include <sys/file.h>

#include <fstream>
#include <set>

#include "gms/endpoint.h"
#include "gms/gms_process.h"
#include "gms/rpc_client.h"
#include "os/file.h"

namespace fo::gms {
namespace {

namespace fs = std::filesystem;

class Bundle : public SimulatedGpu {
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

TEST_F(Bundle, ServesEveryDeviceAndTagUnderUuidAndNumber) {
  GmsProcess bundle({"--socket-dir", dir_});
  ASSERT_TRUE(bundle.is_ready());
  for (int device = 0; device < 2; ++device) {
    EXPECT_EQ(state_at(weights_link(dir_, device)), "EMPTY");
    for (const char* tag : {"weights", "kv_cache"}) {
      const std::string link = socket_link(dir_, device, tag);
      EXPECT_EQ(state_at(link), "EMPTY");
      EXPECT_THAT(fs::read_symlink(link).string(),
                  testing::MatchesRegex("gms_GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_" +
                                        std::string(tag) + "\\.sock"));
    }
  }
  EXPECT_TRUE(fs::exists(ready_path(dir_)));
  EXPECT_EQ(names().size(), 4u + 4u + 2u + 1u);
  EXPECT_EQ(bundle.terminate(), 0);
  EXPECT_TRUE(names().empty());
}

TEST_F(Bundle, OnlyTheDevicesAndTagsAskedFor) {
  GmsProcess bundle({"--socket-dir", dir_, "--devices", "1", "--tags", "weights"});
  ASSERT_TRUE(bundle.is_ready());
  EXPECT_EQ(state_at(weights_link(dir_, 1)), "EMPTY");
  EXPECT_EQ(names().size(), 4u);
}

TEST_F(Bundle, FirstServerToDieEndsTheRestAndGivesItsStatusOnRequest) {
  GmsProcess bundle({"--socket-dir", dir_, "--on-crash", "exit"});
  ASSERT_TRUE(bundle.is_ready());
  const std::vector<pid_t> children = children_of(bundle.child().pid());
  ASSERT_EQ(children.size(), 4u);
  ASSERT_EQ(::kill(children[2], SIGKILL), 0);
  EXPECT_EQ(bundle.wait(), 137);
  EXPECT_TRUE(names().empty());
  for (const pid_t child : children) EXPECT_EQ(os::open_pidfd(child), std::nullopt);
}

TEST_F(Bundle, KilledParentTakesItsServersAlongAndIsReplaced) {
  GmsProcess first({"--socket-dir", dir_});
  ASSERT_TRUE(first.is_ready());
  std::vector<base::UniqueFd> servers;
  for (const pid_t child : children_of(first.child().pid())) {
    servers.push_back(std::move(*os::open_pidfd(child)));
  }
  first.child().signal(SIGKILL);
  EXPECT_EQ(first.wait(), 137);
  for (const base::UniqueFd& server : servers) {
    pollfd ended{server.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ended, 1, soon().poll_timeout()), 1);
  }
  EXPECT_TRUE(fs::exists(ready_path(dir_)));  // stale now
  GmsProcess second({"--socket-dir", dir_});
  ASSERT_TRUE(second.is_ready());
  EXPECT_EQ(state_at(weights_link(dir_, 0)), "EMPTY");
  EXPECT_EQ(second.terminate(), 0);
  EXPECT_TRUE(names().empty());
}

TEST_F(Bundle, KilledParentIsReplacedAtOnce) {
  // Its servers may still be dying.
  for (int round = 0; round < 10; ++round) {
    GmsProcess bundle({"--socket-dir", dir_});
    ASSERT_TRUE(bundle.is_ready()) << round;
    bundle.child().signal(SIGKILL);
    EXPECT_EQ(bundle.wait(), 137);
  }
}

TEST_F(Bundle, SecondOneOnLiveSocketsRefusesAndHarmsNothing) {
  GmsProcess first({"--socket-dir", dir_});
  ASSERT_TRUE(first.is_ready());
  GmsProcess second({"--socket-dir", dir_, "--devices", "1"});
  EXPECT_FALSE(second.is_ready());
  EXPECT_EQ(second.wait(), 73);
  EXPECT_EQ(names().size(), 11u);
  EXPECT_EQ(state_at(weights_link(dir_, 1)), "EMPTY");
}

TEST_F(Bundle, StaleReadyFileGoesEvenWhenNothingElseWorks) {
  std::ofstream(ready_path(dir_)) << "stale";
  set("GMS_SIM_FAULTS", "cuInit:1=100");
  GmsProcess bundle({"--socket-dir", dir_});
  EXPECT_FALSE(bundle.is_ready());
  EXPECT_EQ(bundle.wait(), 69);
  EXPECT_FALSE(fs::exists(ready_path(dir_)));
}

TEST_F(Bundle, DeviceThatIsNotThereIsUnavailable) {
  GmsProcess bundle({"--socket-dir", dir_, "--devices", "0,7"});
  EXPECT_FALSE(bundle.is_ready());
  EXPECT_EQ(bundle.wait(), 69);
  EXPECT_TRUE(names().empty());
}

TEST_F(Bundle, ForeignFileInTheSocketsPlaceIsNotTouched) {
  std::ofstream(path("gms.sock")) << "precious";
  GmsProcess server({"--socket-path", path("gms.sock")});
  EXPECT_EQ(server.wait(), 73);
  EXPECT_EQ(os::read_file(path("gms.sock"), 100), "precious");
}

TEST_F(Bundle, LiveServerOfAnotherMakeIsRespected) {
  const base::UniqueFd foreign = os::listen_unix(path("gms.sock"));
  GmsProcess server({"--socket-path", path("gms.sock")});
  EXPECT_EQ(server.wait(), 73);
  EXPECT_TRUE(os::is_socket_live(path("gms.sock")));
}

TEST_F(Bundle, DeadSocketIsReplaced) {
  os::listen_unix(path("gms.sock")).reset();
  GmsProcess server({"--socket-path", path("gms.sock")});
  ASSERT_TRUE(server.is_ready());
  EXPECT_EQ(state_at(path("gms.sock")), "EMPTY");
}

TEST_F(Bundle, SocketPathThatIsTooLongIsRefusedNotTruncated) {
  GmsProcess server({"--socket-path", path(std::string(100, 'x'))});
  EXPECT_EQ(server.wait(), 64);
  EXPECT_TRUE(names().empty());
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
    // The loser may know before the winner listens.
    EXPECT_EQ(state_at(path("gms.sock")), "EMPTY");
    winner.signal(SIGTERM);
    EXPECT_EQ(winner.wait(soon()), 0);
  }
}

}  // namespace
}  // namespace fo::gms
