// Device identity and fitness. See device.h.
#include "cuda/device.h"

#include <cstring>
#include <span>

#include "base/hex.h"
#include "cuda/memory.h"

namespace fo::cuda {
namespace {

void require(const Driver& driver, abi::Device device, abi::DeviceAttribute attribute,
             const std::string& what, const char* lacks) {
  int value = 0;
  driver.check(driver.api().cuDeviceGetAttribute(&value, attribute, device), what);
  if (value == 0) throw base::Error(base::ExitStatus::kUnavailable, what + ": no " + lacks);
}

}  // namespace

base::GpuUuid format_uuid(const abi::Uuid& uuid, bool mig) {
  return base::GpuUuid((mig ? "MIG-" : "GPU-") +
                       base::uuid_text(std::as_bytes(std::span(uuid.bytes))));
}

int device_count(const Driver& driver) {
  int count = 0;
  driver.check(driver.api().cuDeviceGetCount(&count), "count CUDA devices");
  return count;
}

DeviceInfo device_info(const Driver& driver, base::DeviceOrdinal ordinal) {
  const abi::Functions& api = driver.api();
  const std::string what = "CUDA device " + std::to_string(ordinal.value());
  abi::Device device = 0;
  driver.check(api.cuDeviceGet(&device, ordinal.value()), what);
  require(driver, device, abi::DeviceAttribute::kVirtualMemoryManagementSupported, what,
          "virtual memory management");
  require(driver, device, abi::DeviceAttribute::kHandleTypePosixFileDescriptorSupported, what,
          "export of memory as a file descriptor");

  DeviceInfo info;
  info.ordinal = ordinal;

  // The first form returns the UUID of the whole GPU, the second that of the MIG slice, if there is
  // one. A driver without the first form cannot tell a slice from a GPU.
  abi::Uuid gpu{};
  abi::Uuid own{};
  driver.check(api.cuDeviceGetUuid_v2(&own, device), what);
  const bool knows_gpu =
      api.cuDeviceGetUuid != nullptr && api.cuDeviceGetUuid(&gpu, device) == abi::Result::kSuccess;
  info.uuid = format_uuid(own, knows_gpu && std::memcmp(&gpu, &own, sizeof gpu) != 0);
  if (knows_gpu) info.gpu_uuid = format_uuid(gpu, false);

  std::size_t total = 0;
  driver.check(api.cuDeviceTotalMem_v2(&total, device), what);
  info.total_memory = total;

  const abi::AllocationProp prop = prop_of(ordinal);
  std::size_t granularity = 0;
  driver.check(
      api.cuMemGetAllocationGranularity(&granularity, &prop, abi::GranularityOption::kMinimum),
      what);
  info.granularity = granularity;
  return info;
}

}  // namespace fo::cuda
