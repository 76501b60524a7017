#include "gms/client/discover.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "gms/fake_server.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::gms {
namespace {

namespace fs = std::filesystem;
using test::status_of;
using testing::ElementsAre;

TEST(SocketName, SaysDeviceAndTag) {
  const auto by_number = parse_socket_name("gms_7_kv_cache.sock");
  ASSERT_TRUE(by_number);
  EXPECT_EQ(by_number->device, base::DeviceOrdinal(7));
  EXPECT_EQ(by_number->uuid, "");
  EXPECT_EQ(by_number->tag, "kv_cache");
  const auto by_uuid =
      parse_socket_name("gms_GPU-00000000-1111-2222-3333-444444444444_weights.sock");
  ASSERT_TRUE(by_uuid);
  EXPECT_EQ(by_uuid->device, std::nullopt);
  EXPECT_EQ(by_uuid->uuid, "GPU-00000000-1111-2222-3333-444444444444");
  EXPECT_EQ(by_uuid->tag, "weights");
}

TEST(SocketName, OthersAreNone) {
  for (const char* name :
       {"", "gms_", "gms_.sock", "gms_0.sock", "gms_0_.sock", "gms__weights.sock", "gms-ready",
        "gms_0_weights.sock.lock", "xgms_0_weights.sock", "gms_0_weights"}) {
    EXPECT_FALSE(parse_socket_name(name)) << name;
  }
  EXPECT_EQ(parse_socket_name("gms_1024_w.sock")->device, std::nullopt);
  EXPECT_EQ(parse_socket_name("gms_-1_w.sock")->device, std::nullopt);
}

class Folder : public testing::Test {
 protected:
  void make(const std::string& name) const { std::ofstream(dir_.path(name)); }
  void link(const std::string& name, const std::string& target) const {
    fs::create_symlink(target, dir_.path(name));
  }
  std::vector<std::string> found() const {
    std::vector<std::string> names;
    for (const FoundSocket& socket : find_sockets(dir_.path())) {
      names.push_back(fs::path(socket.path).filename());
    }
    return names;
  }
  test::TempDir dir_;
};

TEST_F(Folder, EachSocketOnceByItsLinkInOrderOfDevices) {
  make("gms_GPU-a_weights.sock");
  make("gms_GPU-b_weights.sock");
  make("gms_GPU-c_weights.sock");
  make("something else");
  link("gms_10_weights.sock", "gms_GPU-a_weights.sock");
  link("gms_9_weights.sock", "gms_GPU-b_weights.sock");
  link("gms_9.sock", "gms_GPU-b_weights.sock");
  EXPECT_THAT(found(),
              ElementsAre("gms_9_weights.sock", "gms_10_weights.sock", "gms_GPU-c_weights.sock"));
}

TEST_F(Folder, LinkThatLeadsNowhereIsFoundToo) {
  link("gms_0_weights.sock", "gone");
  EXPECT_THAT(found(), ElementsAre("gms_0_weights.sock"));
}

TEST_F(Folder, DevicesAreThoseWithALinkOfOneOfTheTags) {
  make("gms_3_weights.sock");
  make("gms_1_kv_cache.sock");
  make("gms_2_other.sock");
  make("gms_GPU-a_weights.sock");
  EXPECT_THAT(find_devices(dir_.path(), {"weights", "kv_cache"}),
              ElementsAre(base::DeviceOrdinal(1), base::DeviceOrdinal(3)));
  EXPECT_THAT(find_devices(dir_.path(), {"weights"}), ElementsAre(base::DeviceOrdinal(3)));
  EXPECT_TRUE(find_devices(dir_.path("absent"), {"weights"}).empty());
}

TEST_F(Folder, TooManySocketsAreRefused) {
  for (int i = 0; i < 4097; ++i) make("gms_" + std::to_string(i) + "_w.sock");
  EXPECT_EQ(status_of([&] { found(); }), base::ExitStatus::kBadData);
}

TEST_F(Folder, FolderThatIsNotThereIsAnError) {
  EXPECT_EQ(status_of([&] { find_sockets(dir_.path("absent")); }), base::ExitStatus::kNoInput);
}

}  // namespace
}  // namespace fo::gms
