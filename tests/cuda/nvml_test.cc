#include "cuda/nvml.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace fo::cuda {
namespace {

constexpr const char* kFake = FO_BUILD_DIR "/tests/libfake_nvml.so";

std::string failure_of(const std::string& uuid, const std::string& library) {
  try {
    nvml_memory_info(uuid, library);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.status(), base::ExitStatus::kUnavailable);
    return error.what();
  }
  return {};
}

TEST(Nvml, TellsWhatIsFreeAndWhatThereIs) {
  const MemoryInfo memory = nvml_memory_info("GPU-known", kFake);
  EXPECT_EQ(memory.free, 600u);
  EXPECT_EQ(memory.total, 1000u);
}

TEST(Nvml, UnknownDeviceIsNamedWithTheReason) {
  EXPECT_EQ(failure_of("GPU-other", kFake),
            "ask NVML for the free memory of 'GPU-other': Not Found");
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
