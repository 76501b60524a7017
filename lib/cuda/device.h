// Which devices exist, and their names. Nothing here creates a context.
#pragma once

#include <string>

#include "base/strong.h"
#include "cuda/driver.h"

namespace fo::cuda {

struct DeviceInfo {
  base::DeviceOrdinal ordinal;
  base::GpuUuid uuid;
  /// The uuid of the whole GPU, which differs from `uuid` on a MIG slice; empty if the driver does
  /// not report it.
  base::GpuUuid gpu_uuid;
  base::ByteCount total_memory = 0;
  /// Sizes of physical memory and address ranges are multiples of this.
  base::ByteCount granularity = 0;
};

/// The number of devices that this process sees (CUDA_VISIBLE_DEVICES applies); at least 1.
int device_count(const Driver& driver);

/// Throws kUnavailable if the device does not exist or lacks what this project needs (virtual
/// memory management, export as a file descriptor).
DeviceInfo device_info(const Driver& driver, base::DeviceOrdinal ordinal);

/// From the driver's 16 bytes.
base::GpuUuid format_uuid(const abi::Uuid& uuid, bool mig);

}  // namespace fo::cuda
