// Device identity and fitness.
#include "cuda/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/sim_folder.h"
#include "cuda/test_device.h"

namespace fo::cuda {
namespace {

class DeviceTest : public ::testing::Test {
 protected:
  SimFolder sim_;
};

TEST(Uuid, IsSpelledAsNvmlDoes) {
  abi::Uuid uuid{};
  for (int i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<char>(i * 17);
  EXPECT_EQ(format_uuid(uuid, false), base::GpuUuid("GPU-00112233-4455-6677-8899-aabbccddeeff"));
  EXPECT_EQ(format_uuid(uuid, true), base::GpuUuid("MIG-00112233-4455-6677-8899-aabbccddeeff"));
}

TEST_F(DeviceTest, InfoIsWhatTheDriverSays) {
  sim_.set("GMS_SIM_VRAM", "64MiB");
  sim_.set("GMS_SIM_GRANULARITY", "64KiB");
  const auto driver = Driver::open("sim");
  const DeviceInfo info = device_info(*driver, kSecond);
  EXPECT_EQ(info.ordinal, kSecond);
  EXPECT_EQ(info.total_memory, 64 * base::kMiB);
  EXPECT_EQ(info.granularity, 64 * base::kKiB);
  EXPECT_THAT(info.uuid.value(),
              ::testing::MatchesRegex("GPU-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"));
  EXPECT_EQ(info.uuid.value().size(), 40u);
  EXPECT_NE(info.uuid, device_info(*driver, kFirst).uuid);
}

TEST_F(DeviceTest, ADriverWithoutTheOlderUuidNamesItsDevicesAllTheSame) {
  const base::GpuUuid uuid = device_info(*Driver::open("sim"), kFirst).uuid;
  EXPECT_EQ(device_info(*Driver::open("sim"), kFirst).gpu_uuid, uuid);
  sim_.fresh_library();
  sim_.set("GMS_SIM_QUIRKS", "no-uuid");
  const DeviceInfo refused = device_info(*Driver::open("sim"), kFirst);
  EXPECT_EQ(refused.uuid, uuid);
  EXPECT_EQ(refused.gpu_uuid, base::GpuUuid());
  sim_.unset("GMS_SIM_QUIRKS");
  const DeviceInfo absent =
      device_info(*Driver::open(FO_BUILD_DIR "/tests/no_uuid/libcuda.so.1"), kFirst);
  EXPECT_EQ(absent.uuid, uuid);
  EXPECT_EQ(absent.gpu_uuid, base::GpuUuid());
}

TEST_F(DeviceTest, NoSuchDeviceIsUnavailable) {
  const auto driver = Driver::open("sim");
  for (const int ordinal : {-1, 2}) {
    try {
      device_info(*driver, base::DeviceOrdinal(ordinal));
      ADD_FAILURE() << "found device " << ordinal;
    } catch (const CudaError& error) {
      EXPECT_EQ(error.status(), base::ExitStatus::kUnavailable);
      EXPECT_THAT(error.what(), ::testing::EndsWith("(101)"));
    }
  }
}

TEST_F(DeviceTest, VisibleDevicesAreRenumbered) {
  const base::GpuUuid second = device_info(*Driver::open("sim"), kSecond).uuid;
  sim_.fresh_library();
  sim_.set("CUDA_VISIBLE_DEVICES", second.value());
  const auto driver = Driver::open("sim");
  EXPECT_EQ(device_count(*driver), 1);
  EXPECT_EQ(device_info(*driver, kFirst).uuid, second);
}

}  // namespace
}  // namespace fo::cuda
