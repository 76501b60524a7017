// A probe of a device: does it have this much free memory?
#pragma once

#include <string>

#include "base/strong.h"
#include "base/units.h"
#include "os/probe.h"

namespace fo::device {

struct GpuProbe {
  base::ByteCount wanted = 0;
  base::DeviceOrdinal device;
  /// For the driver's answer, in addition to the wait.
  base::Duration timeout{};
  /// Time to wait for the memory.
  base::Duration wait{};
};

struct GpuAnswer : os::ProbeAnswer {
  /// The free memory now.
  base::ByteCount free = 0;
};

/// Throws what GpuMemory::ask throws, and kUnavailable without an answer in time.
GpuAnswer probe_gpu(const GpuProbe& probe);

std::string to_json(const GpuAnswer& answer);

}  // namespace fo::device
