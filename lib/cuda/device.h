// Which devices there are and what they are called. Nothing here makes a context.
#pragma once

#include <string>

#include "base/strong.h"
#include "cuda/driver.h"

namespace fo::cuda {

struct DeviceInfo {
  base::DeviceOrdinal ordinal;
  /// As NVML spells it: "GPU-" (or "MIG-") and 8-4-4-4-12 lower case hex digits.
  std::string uuid;
  /// "GPU-…" of the whole GPU, which differs from `uuid` on a MIG slice; empty where the driver
  /// does not tell.
  std::string gpu_uuid;
  base::ByteCount total_memory = 0;
  /// Sizes of physical memory and address ranges are multiples of this.
  base::ByteCount granularity = 0;
};

/// The devices that this process sees (CUDA_VISIBLE_DEVICES applies); at least 1.
int device_count(const Driver& driver);

/// Throws 69 when there is no such device, or it can't do what this project needs (virtual memory
/// management, export as a file descriptor).
DeviceInfo device_info(const Driver& driver, base::DeviceOrdinal ordinal);

/// 'GPU-…' (or 'MIG-…') from the 16 bytes the driver gives.
std::string format_uuid(const abi::Uuid& uuid, bool mig);

}  // namespace fo::cuda
