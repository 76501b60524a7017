#include "device/gpu_gate.h"

#include <algorithm>
#include <optional>

#include "os/file/file.h"
#include "os/log.h"

namespace fo::device {
bool GpuGate::prepare(int interrupt_fd) {
  ask(base::Duration::zero(), interrupt_fd);
  if (os::is_readable(interrupt_fd)) return false;
  if (!memory_.is_known()) throw memory_.no_answer();
  return true;
}

bool GpuGate::ask(base::Duration time, int interrupt_fd) {
  const bool was_known = memory_.is_known();
  const std::optional<bool> enough = memory_.ask(time, memory_.answer_by(time), interrupt_fd);
  if (!enough && was_known && !os::is_readable(interrupt_fd)) {
    os::log(os::LogLevel::kWarning, "{}", memory_.no_answer().what());
  }
  return enough.value_or(false);
}

GpuGate::Outcome GpuGate::wait(const base::Deadline& deadline, int interrupt_fd,
                               const std::function<bool()>& is_lost) {
  constexpr base::Duration kSlice = GpuMemory::kSlice;
  for (;;) {
    const base::Duration left = deadline.remaining().value_or(kSlice);
    const bool enough = ask(std::min(left, kSlice), interrupt_fd);
    if (os::is_readable(interrupt_fd)) return Outcome::kInterrupted;
    if (is_lost()) return Outcome::kLost;
    if (enough) return Outcome::kFree;
    if (deadline.expired()) return Outcome::kDeadline;
  }
}

}  // namespace fo::device
