// An NVML for the simulated devices. With the simulated driver linked without its marker
// (unmarked.map), lib/cuda takes it for a GPU.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "simcuda/driver.h"
#include "simcuda/exports.h"

namespace {

using namespace fo::simcuda;

constexpr int kNotFound = 6;
constexpr int kUnknown = 999;

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return cuInit(0) == Result::kSuccess ? 0 : kUnknown; }

// A device's handle is its ordinal plus 1.
int nvmlDeviceGetHandleByUUID(const char* wanted, void** device) {
  int count = 0;
  if (cuDeviceGetCount(&count) != Result::kSuccess) return kUnknown;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Uuid uuid{};
    if (cuDeviceGetUuid_v2(&uuid, ordinal) != Result::kSuccess) return kUnknown;
    if (text_of(uuid) != wanted) continue;
    *device = reinterpret_cast<void*>(static_cast<std::uintptr_t>(ordinal) + 1);
    return 0;
  }
  return kNotFound;
}

// NVML orders by PCI bus, which FO_TEST_NVML_REVERSED reverses.
int nvmlDeviceGetIndex(void* device, unsigned* index) {
  int count = 0;
  if (cuDeviceGetCount(&count) != Result::kSuccess) return kUnknown;
  const auto ordinal = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device) - 1);
  const bool reversed = std::getenv("FO_TEST_NVML_REVERSED") != nullptr;
  *index = reversed ? static_cast<unsigned>(count) - 1 - ordinal : ordinal;
  return 0;
}

int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  const auto ordinal = static_cast<int>(reinterpret_cast<std::uintptr_t>(device) - 1);
  std::size_t free = 0;
  std::size_t total = 0;
  if (fo_simcuda_memory_info(ordinal, &free, &total) != Result::kSuccess) return kUnknown;
  *memory = {total, free, total - free};
  return 0;
}

const char* nvmlErrorString(int result) {
  return result == kNotFound ? "Not Found" : "Unknown Error";
}
}
