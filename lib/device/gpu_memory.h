// How much memory a device has free, as the private helper fo-gpu is told by the driver: so that
// this program can stay static.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/strong.h"
#include "base/units.h"
#include "os/sibling.h"

namespace fo::device {

class GpuMemory {
 public:
  /// How long the helper waits by itself before it is asked anew, so that others have their turn.
  static constexpr base::Duration kSlice = std::chrono::milliseconds(250);

  GpuMemory(base::ByteCount wanted, int device) : wanted_(wanted), device_(device) {}

  /// Asks the device, for up to `time` until what is wanted is free: whether it is. nullopt when
  /// nobody answered by `deadline`, or `interrupt_fd` (where >= 0) became readable. Throws
  /// kUnavailable where there is no helper, driver or such device, kUsage for more than the device
  /// has, kSoftware for a helper that fails.
  std::optional<bool> ask(base::Duration time, const base::Deadline& deadline,
                          int interrupt_fd = -1);

  /// For those who run the helper themselves: the command that asks for up to `time`, and whether
  /// the memory is free by its answer. Throw as ask().
  [[nodiscard]] std::vector<std::string> question(base::Duration time) const;
  bool read_answer(const os::Captured& answer);
  /// When nobody is likely to answer such a question any more: a driver may be slow to start, and
  /// one that hangs is asked again.
  [[nodiscard]] base::Deadline answer_by(base::Duration time) const;
  /// What to throw then, and where the helper can't be run.
  [[nodiscard]] base::Error no_answer() const;
  static base::Error unavailable(const std::string& what);
  void want(base::ByteCount wanted) { wanted_ = wanted; }

  /// Whether the device has answered ever; from then on its answers need no driver to be started.
  [[nodiscard]] bool is_known() const { return !uuid_.empty(); }
  /// What the device said last.
  [[nodiscard]] base::ByteCount free() const { return free_; }
  /// "device 0 has 1 GiB free of the 2 GiB wanted".
  [[nodiscard]] std::string describe() const;
  /// "ask for the free memory of device 0", for messages.
  [[nodiscard]] std::string what() const;

 private:
  base::ByteCount wanted_;
  int device_;
  base::ByteCount free_ = 0;
  std::string uuid_;
};

}  // namespace fo::device
