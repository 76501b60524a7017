// The last gate after a grant: the device really has the memory free that the engine will need.
// A dead engine's driver may give memory back later than its locks. The driver is asked by the
// private helper fo-gpu, so that this program can stay static.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/strong.h"
#include "lock/failover_lock.h"
#include "os/sibling.h"

namespace fo::lock {

class GpuGate {
 public:
  GpuGate(base::ByteCount wanted, int device) : wanted_(wanted), device_(device) {}

  /// Asks the device once, so that what can't work fails before the wait for the lock. False when
  /// `interrupt_fd` became readable. Throws kUnavailable where there is no helper, driver or such
  /// device, kUsage for more than the device has.
  bool prepare(int interrupt_fd);

  enum class Outcome { kFree, kDeadline, kInterrupted, kLost };
  /// Waits until the memory is free, `deadline`, until `interrupt_fd` is readable, or until the
  /// lock is lost. Throws when the device can't be asked any more.
  Outcome wait(FailoverLock& lock, const base::Deadline& deadline, int interrupt_fd);

  /// For those who run the helper themselves: the command that asks, and waits for up to `time`,
  /// and what its answer means: whether the memory is free. Throws as prepare() and wait() do.
  [[nodiscard]] std::vector<std::string> question(base::Duration time) const;
  bool hear(const os::Captured& answer);
  void want(base::ByteCount wanted) { wanted_ = wanted; }

  /// What the device said last.
  [[nodiscard]] base::ByteCount free() const { return free_; }
  /// "device 0 has 1 GiB free of the 2 GiB wanted".
  [[nodiscard]] std::string describe() const;

 private:
  // Waits up to `time`; false when there is still too little, or nobody answered.
  bool ask(base::Duration time, int interrupt_fd);

  [[nodiscard]] std::string what() const;

  base::ByteCount wanted_;
  int device_;
  base::ByteCount free_ = 0;
  std::string uuid_;
};

}  // namespace fo::lock
