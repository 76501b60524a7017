// Events of a program as JSON lines on a descriptor that its caller chose (--status-fd), separate
// from stdout and the exit status. Readers ignore unknown events.
#pragma once

#include <string_view>

namespace fo::os {

class StatusFd {
 public:
  /// Writes to `fd`, which the caller keeps; it becomes CLOEXEC. -1 disables the events. Throws
  /// Error(kUsage) if `fd` is not open.
  explicit StatusFd(int fd);

  /// One line: {"event":"granted","time":…,"monotonic":…,MEMBERS} with both clocks in seconds.
  /// `members` is the text between the braces of a JSON object, or empty. A slow or closed reader
  /// loses lines; the call never blocks.
  void write(std::string_view event, std::string_view members = {}) const;

  /// The same for a complete object, without its newline. Objects of PIPE_BUF bytes or more are
  /// dropped.
  void write_line(std::string_view json) const;

  [[nodiscard]] bool wanted() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// CLOCK_MONOTONIC and CLOCK_REALTIME in seconds.
double monotonic_seconds();
double wall_seconds();

}  // namespace fo::os
