#include "cuda/nvml.h"

#include <dlfcn.h>

#include "base/error.h"

namespace fo::cuda {
namespace {

// The part of NVML's ABI that is used here. Results: 0 is success.
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
using Device = void*;
using Init = int (*)();
using GetHandleByUuid = int (*)(const char* uuid, Device* device);
using GetMemoryInfo = int (*)(Device device, Memory* memory);
using ErrorString = const char* (*)(int result);

[[noreturn]] void fail(const std::string& uuid, const std::string& reason) {
  throw base::Error(base::ExitStatus::kUnavailable,
                    "ask NVML for the free memory of " + base::quoted(uuid) + ": " + reason);
}

}  // namespace

DeviceMemory nvml_device_memory(const std::string& uuid, const std::string& library) {
  // Stays loaded, and its session open: the driver's libraries can't be trusted to unload.
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = ::dlerror();
    fail(uuid, reason != nullptr ? reason : library);
  }
  const auto find = [&](const char* name) {
    void* const symbol = ::dlsym(handle, name);
    if (symbol == nullptr) fail(uuid, std::string("no ") + name + " in " + library);
    return symbol;
  };
  const auto init = reinterpret_cast<Init>(find("nvmlInit_v2"));
  const auto get_handle = reinterpret_cast<GetHandleByUuid>(find("nvmlDeviceGetHandleByUUID"));
  const auto get_memory = reinterpret_cast<GetMemoryInfo>(find("nvmlDeviceGetMemoryInfo"));
  const auto error_string = reinterpret_cast<ErrorString>(find("nvmlErrorString"));
  Device device = nullptr;
  int result = init();
  if (result == 0) result = get_handle(uuid.c_str(), &device);
  if (result != 0) fail(uuid, error_string(result));
  return {uuid, [=] {
            Memory memory{};
            const int failure = get_memory(device, &memory);
            if (failure != 0) fail(uuid, error_string(failure));
            return MemoryInfo{memory.free, memory.total};
          }};
}

}  // namespace fo::cuda
