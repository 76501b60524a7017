// Free memory of a real GPU without a context, which would cost hundreds of MiB of it: asked of
// NVML, libnvidia-ml.so.1, which comes with the driver.
#pragma once

#include <string>

#include "cuda/memory.h"

namespace fo::cuda {

/// What is free on the device with this uuid ("GPU-…" or "MIG-…"). Throws Error(kUnavailable) when
/// there is no NVML, or it does not know the device. `library` is for tests.
MemoryInfo nvml_memory_info(const std::string& uuid,
                            const std::string& library = "libnvidia-ml.so.1");

}  // namespace fo::cuda
