// The kernel's messages, from /dev/kmsg, and from the text of dmesg(1), of journalctl(1) and of
// files of syslog.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.h"

namespace fo::canary {

struct KernelMessage {
  /// One line, without the time and the priority before it.
  std::string text = {};
  /// Time since the machine was started; nullopt if the log does not have it.
  std::optional<base::Duration> uptime = {};
  /// The time of day, as the log has it; empty if it has none.
  std::string time = {};
};

using OnMessage = std::function<void(const KernelMessage&)>;

/// Calls `on_message` for each line of the text of a record of /dev/kmsg. A record of another form
/// has none.
void parse_kmsg(std::string_view record, const OnMessage& on_message);

/// A line of a log, which may continue a message of several lines. What precedes the text of the
/// NVIDIA driver is taken off; the text of a line without it is the line.
KernelMessage parse_log_line(std::string_view line);

/// Splits bytes into lines. What exceeds kMaxBytes of a line is dropped.
class LogLines {
 public:
  static constexpr std::size_t kMaxBytes = 8192;

  explicit LogLines(OnMessage on_message) : on_message_(std::move(on_message)) {}

  void append(std::string_view bytes);
  /// The last line may have no newline.
  void finish();

 private:
  void add(std::string_view bytes);

  OnMessage on_message_;
  std::string line_;
};

/// read(2) of the log: the number of bytes, or -1 and an errno.
using ReadCall = std::function<ssize_t(char* buffer, std::size_t size)>;

/// Reads records until there are no more, which does not happen with the kernel's. Messages that
/// were overwritten before they were read are reported to `on_lost`. Throws "`what`: reason" with
/// the errno's status.
void read_kmsg(const ReadCall& read, const std::string& what, const OnMessage& on_message,
               const std::function<void()>& on_lost);

/// Reads lines until there are no more. Throws as read_kmsg().
void read_log(const ReadCall& read, const std::string& what, LogLines& lines);

/// Reads the lines of a file, and those that are appended to it, for ever. After it was replaced,
/// as logrotate(8) does, the new file is read; after it was truncated, it is read from its
/// beginning. Throws with the errno's status if the file does not exist at first, or can't be read
/// or watched.
[[noreturn]] void follow_log(const std::string& path, const OnMessage& on_message);

}  // namespace fo::canary
