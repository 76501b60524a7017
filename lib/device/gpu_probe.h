// A probe of a device: has it so much memory free?
#pragma once

#include <string>

#include "base/strong.h"
#include "base/units.h"

namespace fo::device {

struct GpuProbe {
  base::ByteCount wanted = 0;
  int device = 0;
  /// For the driver's answer, beyond the wait.
  base::Duration timeout{};
  /// How long to wait for the memory.
  base::Duration wait{};
};

struct GpuAnswer {
  bool yes = false;
  /// What is free now.
  base::ByteCount free = 0;
  /// For no: one line.
  std::string reason;
};

/// Throws what GpuMemory::ask throws, and kUnavailable when it does not answer in time.
GpuAnswer probe_gpu(const GpuProbe& probe);

std::string to_json(const GpuAnswer& answer);

}  // namespace fo::device
