// Queries the free memory of a device. The private helper fo-gpu queries the driver, so that this
// program can stay static.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/strong.h"
#include "base/units.h"
#include "os/process/sibling.h"

namespace fo::device {

class GpuMemory {
 public:
  /// Time for which the helper waits before it is started again, so that other queries get a turn.
  static constexpr base::Duration kSlice = std::chrono::milliseconds(250);

  GpuMemory(base::ByteCount wanted, base::DeviceOrdinal device)
      : wanted_(wanted), device_(device) {}

  /// Queries the device for up to `time`, until enough memory is free; returns whether it is.
  /// nullopt if there was no answer by `deadline`, or `interrupt_fd` (if >= 0) became readable.
  /// Throws kUnavailable without a helper, driver or such a device, kUsage for more memory than the
  /// device has, kSoftware if the helper fails.
  std::optional<bool> ask(base::Duration time, const base::Deadline& deadline,
                          int interrupt_fd = -1);

  /// For callers that run the helper themselves: the command for a query of up to `time`, and
  /// whether its answer reports enough free memory. Errors as for ask().
  [[nodiscard]] std::vector<std::string> question(base::Duration time) const;
  bool read_answer(const os::Captured& answer);
  /// When to stop waiting for such an answer. A driver may start slowly; one that hangs is queried
  /// again.
  [[nodiscard]] base::Deadline answer_by(base::Duration time) const;
  /// The error for a missing answer, and for a helper that cannot be run.
  [[nodiscard]] base::Error no_answer() const;
  static base::Error unavailable(const std::string& what);
  void want(base::ByteCount wanted) { wanted_ = wanted; }

  /// Whether the device has answered before; later answers do not need to start the driver.
  [[nodiscard]] bool is_known() const { return !uuid_.empty(); }
  /// The free memory of the last answer.
  [[nodiscard]] base::ByteCount free() const { return free_; }
  /// "device 0 has 1 GiB free, 2 GiB needed".
  [[nodiscard]] std::string describe() const;

 private:
  // "query the free memory of device 0", for messages.
  [[nodiscard]] std::string what() const;

  base::ByteCount wanted_;
  base::DeviceOrdinal device_;
  base::ByteCount free_ = 0;
  base::GpuUuid uuid_;
};

}  // namespace fo::device
