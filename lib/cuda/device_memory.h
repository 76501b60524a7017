// What is free on a device, without the context that the driver's own answer takes: that costs
// memory, and can't be made on a full device. A real device is asked of NVML, a simulated one of
// its books.
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

/// One device, to be asked as often as one likes.
struct DeviceMemory {
  /// As device_info() spells it.
  std::string uuid;
  /// What is free now, in all processes' eyes. Throws Error when the device doesn't answer.
  std::function<MemoryInfo()> ask;
};

/// Throws what device_info() does, and Error(kUnavailable) for a real device without NVML.
DeviceMemory device_memory(const std::shared_ptr<const Driver>& driver,
                           base::DeviceOrdinal ordinal);

/// Asks until `wanted` bytes are free or the deadline has passed: the last answer, which says
/// which. Throws Error(kUsage) when the device has less than `wanted` in all, and what ask()
/// throws.
MemoryInfo wait_until_free(const DeviceMemory& memory, base::ByteCount wanted,
                           const base::Deadline& deadline);

}  // namespace fo::cuda
