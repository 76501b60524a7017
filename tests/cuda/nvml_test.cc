#include "cuda/nvml.h"

#include <gmock/gmock.h>

#include "support/failure.h"

namespace fo::cuda {
namespace {

constexpr const char* kFake = FO_BUILD_DIR "/tests/libfake_nvml.so";

std::string failure_of(const std::string& uuid, const std::string& library) {
  const auto failure =
      test::failure_of([&] { nvml_device_memory(base::GpuUuid(uuid), library).ask(); });
  EXPECT_EQ(failure.status, base::ExitStatus::kUnavailable);
  return failure.message;
}

TEST(Nvml, TellsWhatIsFreeAndWhatThereIs) {
  const DeviceMemory memory = nvml_device_memory(base::GpuUuid("GPU-known"), kFake);
  EXPECT_EQ(memory.uuid, base::GpuUuid("GPU-known"));
  const MemoryInfo info = memory.ask();
  EXPECT_EQ(info.free, 600u);
  EXPECT_EQ(info.total, 1000u);
}

TEST(Nvml, AsksAgainInTheSameSession) {
  const DeviceMemory memory = nvml_device_memory(base::GpuUuid("GPU-known"), kFake);
  for (const unsigned free : {600u, 700u, 800u}) EXPECT_EQ(memory.ask().free, free);
}

TEST(Nvml, MemoryThatIsFreedLateIsWaitedFor) {
  const DeviceMemory memory = nvml_device_memory(base::GpuUuid("GPU-known"), kFake);
  EXPECT_EQ(wait_until_free(memory, 850, base::Deadline::never()).free, 900u);
}

TEST(Nvml, UnknownDeviceIsNamedWithTheReason) {
  EXPECT_EQ(failure_of("GPU-other", kFake),
            "query NVML for the free memory of 'GPU-other': Not Found");
  EXPECT_THROW(nvml_device_memory(base::GpuUuid("GPU-other"), kFake), base::Error)
      << "found out before waiting";
}

TEST(Nvml, DeviceThatIsLostMeanwhileIsUnavailable) {
  EXPECT_NO_THROW(nvml_device_memory(base::GpuUuid("GPU-lost"), kFake));
  EXPECT_EQ(failure_of("GPU-lost", kFake),
            "query NVML for the free memory of 'GPU-lost': GPU is lost");
}

TEST(Nvml, TellsItsNumberOfADevice) {
  EXPECT_EQ(nvml_device_index(base::GpuUuid("GPU-known"), kFake), 5);
  const auto lost = test::failure_of([] { nvml_device_index(base::GpuUuid("GPU-lost"), kFake); });
  EXPECT_EQ(lost.status, base::ExitStatus::kUnavailable);
  EXPECT_EQ(lost.message, "query NVML for the index of 'GPU-lost': GPU is lost");
}

TEST(Nvml, MissingLibraryIsUnavailable) {
  EXPECT_THAT(failure_of("GPU-known", "/nowhere/libnvidia-ml.so.1"),
              testing::HasSubstr("/nowhere/libnvidia-ml.so.1"));
}

TEST(Nvml, LibraryOfAnotherKindIsUnavailable) {
  EXPECT_THAT(failure_of("GPU-known", FO_BUILD_DIR "/lib/sim/libcuda.so.1"),
              testing::HasSubstr("no nvmlInit_v2"));
}

}  // namespace
}  // namespace fo::cuda
