// The last check after a grant: the device has as much free memory as the engine will need. A dead
// engine's driver may release memory later than its locks.
#pragma once

#include <string>

#include "base/deadline.h"
#include "base/strong.h"
#include "device/gpu_memory.h"
#include "lock/failover_lock.h"

namespace fo::lock {

class GpuGate {
 public:
  GpuGate(base::ByteCount wanted, base::DeviceOrdinal device) : memory_(wanted, device) {}

  /// Queries the device once, so that errors show before the wait for the lock. False if
  /// `interrupt_fd` became readable. Throws kUnavailable without a helper, driver or such a device,
  /// kUsage for more than the device has.
  bool prepare(int interrupt_fd);

  enum class Outcome { kFree, kDeadline, kInterrupted, kLost };
  /// Waits until the memory is free, `deadline`, `interrupt_fd` is readable, or the lock is lost.
  /// Throws if the device cannot be queried any more.
  Outcome wait(FailoverLock& lock, const base::Deadline& deadline, int interrupt_fd);

  /// The device's last answer.
  [[nodiscard]] base::ByteCount free() const { return memory_.free(); }
  /// "device 0 has 1 GiB free of the 2 GiB wanted".
  [[nodiscard]] std::string describe() const { return memory_.describe(); }

 private:
  // Waits up to `time`; false if there is still too little, or no answer came.
  bool ask(base::Duration time, int interrupt_fd);

  device::GpuMemory memory_;
};

}  // namespace fo::lock
