// Free memory of a device without a context: a context needs device memory, which a full device
// does not have. NVML answers for a real device, the simulated driver for a simulated one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/strong.h"
#include "cuda/driver.h"

namespace fo::cuda {

struct MemoryInfo {
  base::ByteCount free = 0;
  base::ByteCount total = 0;
};

/// One device that can be queried repeatedly.
struct DeviceMemory {
  base::GpuUuid uuid;
  /// Queries the free memory as seen by all processes. Throws Error if the device does not answer.
  std::function<MemoryInfo()> ask;
};

/// Throws what device_info() does, and Error(kUnavailable) for a real device without NVML.
DeviceMemory device_memory(const std::shared_ptr<const Driver>& driver,
                           base::DeviceOrdinal ordinal);

/// Queries until `wanted` bytes are free or the deadline has passed, and returns the last answer.
/// Throws Error(kUsage) if the device's total is less than `wanted`, and whatever ask() throws.
MemoryInfo wait_until_free(const DeviceMemory& memory, base::ByteCount wanted,
                           const base::Deadline& deadline);

}  // namespace fo::cuda
