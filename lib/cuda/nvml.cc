#include "cuda/nvml.h"

#include <dlfcn.h>

#include "base/error.h"

namespace fo::cuda {
namespace {

// The part of NVML's ABI that is used here. A result of 0 is success.
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
using Device = void*;
using Init = int (*)();
using GetHandleByUuid = int (*)(const char* uuid, Device* device);
using GetIndex = int (*)(Device device, unsigned int* index);
using GetMemoryInfo = int (*)(Device device, Memory* memory);
using ErrorString = const char* (*)(int result);

/// One device in an NVML session. The library stays loaded and the session open, because the
/// driver's libraries do not unload safely.
class Nvml {
 public:
  /// `what` is the action for messages, such as "query NVML for the free memory of".
  Nvml(const std::string& library, const char* what, const base::GpuUuid& uuid)
      : what_(std::string(what) + " " + base::quoted(uuid.value())), library_(library) {
    handle_ = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
      const char* const reason = ::dlerror();
      fail(reason != nullptr ? reason : library);
    }
    const auto init = find<Init>("nvmlInit_v2");
    error_string_ = find<ErrorString>("nvmlErrorString");
    check(init());
    check(find<GetHandleByUuid>("nvmlDeviceGetHandleByUUID")(uuid.value().c_str(), &device_));
  }

  template <typename Function>
  Function find(const char* name) const {
    void* const symbol = ::dlsym(handle_, name);
    if (symbol == nullptr) fail(std::string("no ") + name + " in " + library_);
    return reinterpret_cast<Function>(symbol);
  }
  void check(int result) const {
    if (result != 0) fail(error_string_(result));
  }
  [[nodiscard]] Device device() const { return device_; }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw base::Error(base::ExitStatus::kUnavailable, what_ + ": " + reason);
  }

  std::string what_;
  std::string library_;
  void* handle_ = nullptr;
  ErrorString error_string_ = nullptr;
  Device device_ = nullptr;
};

}  // namespace

DeviceMemory nvml_device_memory(const base::GpuUuid& uuid, const std::string& library) {
  const Nvml nvml(library, "query NVML for the free memory of", uuid);
  const auto get_memory = nvml.find<GetMemoryInfo>("nvmlDeviceGetMemoryInfo");
  return {uuid, [=] {
            Memory memory{};
            nvml.check(get_memory(nvml.device(), &memory));
            return MemoryInfo{memory.free, memory.total};
          }};
}

int nvml_device_index(const base::GpuUuid& uuid, const std::string& library) {
  const Nvml nvml(library, "query NVML for the index of", uuid);
  unsigned int index = 0;
  nvml.check(nvml.find<GetIndex>("nvmlDeviceGetIndex")(nvml.device(), &index));
  return static_cast<int>(index);
}

}  // namespace fo::cuda
