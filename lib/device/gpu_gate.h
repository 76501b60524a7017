// Waits after the grant of a lock until the device has as much free memory as the engine will need:
// a dead engine's driver may release memory later than its locks. For programs without an event
// loop; engine/device_gate.h does the same for several devices on a loop.
#pragma once

#include <functional>
#include <string>

#include "base/deadline.h"
#include "base/strong.h"
#include "device/gpu_memory.h"

namespace fo::device {

class GpuGate {
 public:
  GpuGate(base::ByteCount wanted, base::DeviceOrdinal device) : memory_(wanted, device) {}

  /// Queries the device once, so that errors show before the wait for the lock. False if
  /// `interrupt_fd` became readable. Throws kUnavailable without a helper, driver or such a device,
  /// kUsage for more than the device has.
  bool prepare(int interrupt_fd);

  enum class Outcome { kFree, kDeadline, kInterrupted, kLost };
  /// Waits until the memory is free, `deadline` has passed, `interrupt_fd` is readable, or
  /// `is_lost` returns true. Calls `is_lost` after each query: every GpuMemory::kSlice, or later if
  /// the driver does not answer. Throws the errors of GpuMemory::ask.
  Outcome wait(const base::Deadline& deadline, int interrupt_fd,
               const std::function<bool()>& is_lost);

  /// The device's last answer.
  [[nodiscard]] base::ByteCount free() const { return memory_.free(); }
  /// "device 0 has 1 GiB free, 2 GiB needed".
  [[nodiscard]] std::string describe() const { return memory_.describe(); }

 private:
  // Waits up to `time`; false if there is still too little, or no answer came.
  bool ask(base::Duration time, int interrupt_fd);

  GpuMemory memory_;
};

}  // namespace fo::device
