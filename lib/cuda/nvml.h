// A real GPU's free memory and number, asked of NVML, libnvidia-ml.so.1, which comes with the
// driver and needs neither a context nor cuInit.
#pragma once

#include <string>

#include "cuda/device_memory.h"

namespace fo::cuda {

/// The device with this uuid ("GPU-…" or "MIG-…"), in one session of NVML. Throws
/// Error(kUnavailable) when there is no NVML, or it does not know the device. `library` is for
/// tests.
DeviceMemory nvml_device_memory(const std::string& uuid,
                                const std::string& library = "libnvidia-ml.so.1");

/// NVML's number of the GPU with this uuid ("GPU-…"), which is not CUDA's where CUDA orders devices
/// by speed or sees only some of them. Throws Error(kUnavailable) as above.
int nvml_device_index(const std::string& uuid, const std::string& library = "libnvidia-ml.so.1");

}  // namespace fo::cuda
