#include "cuda/nvml.h"

#include "base/error.h"
#include "cuda/nvml_session.h"

namespace fo::cuda {
namespace {

// The part of NVML's ABI that is used here.
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
using GetHandleByUuid = int (*)(const char* uuid, NvmlDevice* device);
using GetIndex = int (*)(NvmlDevice device, unsigned int* index);
using GetMemoryInfo = int (*)(NvmlDevice device, Memory* memory);

std::string query(const char* what, const base::GpuUuid& uuid) {
  return std::string("query NVML for the ") + what + " of " + base::quoted(uuid.value());
}

NvmlDevice find_device(const NvmlSession& nvml, const base::GpuUuid& uuid) {
  NvmlDevice device = nullptr;
  const auto get_handle = nvml.find<GetHandleByUuid>("nvmlDeviceGetHandleByUUID");
  nvml.check(get_handle(uuid.value().c_str(), &device));
  return device;
}

}  // namespace

DeviceMemory nvml_device_memory(const base::GpuUuid& uuid, const std::string& library) {
  const NvmlSession nvml(library, query("free memory", uuid));
  const NvmlDevice device = find_device(nvml, uuid);
  const auto get_memory = nvml.find<GetMemoryInfo>("nvmlDeviceGetMemoryInfo");
  return {uuid, [=] {
            Memory memory{};
            nvml.check(get_memory(device, &memory));
            return MemoryInfo{memory.free, memory.total};
          }};
}

int nvml_device_index(const base::GpuUuid& uuid, const std::string& library) {
  const NvmlSession nvml(library, query("index", uuid));
  unsigned int index = 0;
  nvml.check(nvml.find<GetIndex>("nvmlDeviceGetIndex")(find_device(nvml, uuid), &index));
  return static_cast<int>(index);
}

}  // namespace fo::cuda
