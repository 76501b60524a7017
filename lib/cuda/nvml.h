// A GPU's free memory and index from NVML (libnvidia-ml.so.1), which is part of the driver and
// needs neither a context nor cuInit.
#pragma once

#include <string>

#include "cuda/device_memory.h"
#include "cuda/nvml_session.h"

namespace fo::cuda {

/// The device with this uuid, in one NVML session. Throws Error(kUnavailable) if NVML is missing or
/// does not know the device. `library` is for tests.
DeviceMemory nvml_device_memory(const base::GpuUuid& uuid,
                                const std::string& library = kNvmlLibrary);

/// NVML's index of the GPU with this uuid. CUDA's ordinal differs if CUDA orders devices by speed
/// or sees only some of them. Throws Error(kUnavailable) as above.
int nvml_device_index(const base::GpuUuid& uuid, const std::string& library = kNvmlLibrary);

}  // namespace fo::cuda
