#include "lock/gpu_gate.h"

#include <poll.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "os/log.h"

namespace fo::lock {
namespace {

// How long the helper waits by itself before the lock and the signals are looked at again.
constexpr base::Duration kSlice = std::chrono::milliseconds(250);
// Beyond that, for a driver that is slow: to start, and to answer. One that hangs is asked again.
constexpr base::Duration kStartTime = std::chrono::seconds(30);
constexpr base::Duration kAnswerTime = std::chrono::seconds(5);

bool is_readable(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, 0) > 0;
}

}  // namespace

bool GpuGate::prepare(int interrupt_fd) {
  ask(base::Duration::zero(), interrupt_fd);
  if (is_readable(interrupt_fd)) return false;
  if (!memory_.is_known()) {
    throw base::Error(base::ExitStatus::kUnavailable, memory_.what() + ": no answer in time");
  }
  return true;
}

bool GpuGate::ask(base::Duration time, int interrupt_fd) {
  const bool was_known = memory_.is_known();
  const auto deadline = base::Deadline::after(time + (was_known ? kAnswerTime : kStartTime));
  const std::optional<bool> enough = memory_.ask(time, deadline, interrupt_fd);
  if (!enough && was_known && !is_readable(interrupt_fd)) {
    os::log(os::LogLevel::kWarning, "{}: no answer in time", memory_.what());
  }
  return enough.value_or(false);
}

GpuGate::Outcome GpuGate::wait(FailoverLock& lock, const base::Deadline& deadline,
                               int interrupt_fd) {
  for (;;) {
    const base::Duration left = deadline.remaining().value_or(kSlice);
    const bool enough = ask(std::min(left, kSlice), interrupt_fd);
    if (is_readable(interrupt_fd)) return Outcome::kInterrupted;
    if (lock.check()) return Outcome::kLost;
    if (enough) return Outcome::kFree;
    if (deadline.expired()) return Outcome::kDeadline;
  }
}

}  // namespace fo::lock
