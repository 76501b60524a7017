// The last gate after a grant: the device really has the memory free that the engine will need.
// A dead engine's driver may give memory back later than its locks.
#pragma once

#include <string>

#include "base/deadline.h"
#include "base/strong.h"
#include "device/gpu_memory.h"
#include "lock/failover_lock.h"

namespace fo::lock {

class GpuGate {
 public:
  GpuGate(base::ByteCount wanted, int device) : memory_(wanted, device) {}

  /// Asks the device once, so that what can't work fails before the wait for the lock. False when
  /// `interrupt_fd` became readable. Throws kUnavailable where there is no helper, driver or such
  /// device, kUsage for more than the device has.
  bool prepare(int interrupt_fd);

  enum class Outcome { kFree, kDeadline, kInterrupted, kLost };
  /// Waits until the memory is free, `deadline`, until `interrupt_fd` is readable, or until the
  /// lock is lost. Throws when the device can't be asked any more.
  Outcome wait(FailoverLock& lock, const base::Deadline& deadline, int interrupt_fd);

  /// What the device said last.
  [[nodiscard]] base::ByteCount free() const { return memory_.free(); }
  /// "device 0 has 1 GiB free of the 2 GiB wanted".
  [[nodiscard]] std::string describe() const { return memory_.describe(); }

 private:
  // Waits up to `time`; false when there is still too little, or nobody answered.
  bool ask(base::Duration time, int interrupt_fd);

  device::GpuMemory memory_;
};

}  // namespace fo::lock
