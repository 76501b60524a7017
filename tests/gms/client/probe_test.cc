// What bats/gms-probe.bats does not show.
#include "gms/client/probe.h"

#include <gmock/gmock.h>

#include "gms/fake_server.h"
#include "gms/protocol/endpoint.h"
#include "support/temp_dir.h"

namespace fo::gms {
namespace {

using testing::HasSubstr;

class Probe : public testing::Test {
 protected:
  Probe() {
    probe_.socket_dir = dir_.path();
    probe_.tags = {"weights"};
  }
  test::TempDir dir_;
  std::string link_ = socket_link(dir_.path(), base::DeviceOrdinal(0), "weights");
  SocketsProbe probe_;
};

TEST_F(Probe, NothingInTheFolderIsANo) {
  EXPECT_THAT(probe_sockets(probe_).reason, HasSubstr("none found"));
  probe_.socket_dir += "/absent";
  EXPECT_THAT(probe_sockets(probe_).reason, HasSubstr("none found"));
}

TEST_F(Probe, DeviceThatLacksATagIsANo) {
  probe_.tags.push_back("kv_cache");
  const FakeServer only(link_,
                        {{"get_runtime_state_request", encode_frame(GetRuntimeStateResponse{})}});
  EXPECT_THAT(probe_sockets(probe_).reason, HasSubstr("gms_0_kv_cache.sock"));
}

TEST_F(Probe, RefusalIsANo) {
  const FakeServer server(
      link_, {{"get_runtime_state_request", encode_frame(ErrorResponse{"not today", 0})}});
  EXPECT_THAT(probe_sockets(probe_).reason, HasSubstr("not today"));
}

}  // namespace
}  // namespace fo::gms
