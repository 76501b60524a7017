// What happens to a program, as JSON lines on a descriptor that its caller chose (--status-fd): an
// unambiguous channel beside stdout and the exit status. Readers ignore what they don't know.
#pragma once

#include <string_view>

namespace fo::os {

class StatusFd {
 public:
  /// Writes to `fd`, which stays the caller's, becomes CLOEXEC and is not passed on; -1: nowhere.
  /// Throws Error(kUsage) when it is not open.
  explicit StatusFd(int fd);

  /// One line: {"event":"granted","time":…,"monotonic":…,MEMBERS} with both clocks in seconds.
  /// `members` is what stands between the braces of a JSON object, or nothing. A reader that is
  /// gone or too slow loses lines; it never holds anybody up.
  void write(std::string_view event, std::string_view members = {}) const;

  /// The same for an object made elsewhere, without its newline. One of PIPE_BUF bytes or more is
  /// lost.
  void write_line(std::string_view json) const;

  [[nodiscard]] bool wanted() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// CLOCK_MONOTONIC and CLOCK_REALTIME in seconds.
double monotonic_seconds();
double wall_seconds();

}  // namespace fo::os
