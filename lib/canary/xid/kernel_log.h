// The kernel's messages, from /dev/kmsg, and from the text of dmesg(1), of journalctl(1) and of
// files of syslog.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
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

/// Calls `on_message` for each line of the text of a record of /dev/kmsg. A malformed record has no
/// lines.
void parse_kmsg(std::string_view record, const OnMessage& on_message);

/// Parses a line of a log, which may continue a message of several lines. The text begins at the
/// prefix of the NVIDIA driver; the text of a line without that prefix is the whole line.
KernelMessage parse_log_line(std::string_view line);

/// Splits bytes into lines. The part of a line beyond kMaxBytes is dropped.
class LogLines {
 public:
  static constexpr std::size_t kMaxBytes = 8192;

  explicit LogLines(OnMessage on_message) : on_message_(std::move(on_message)) {}

  void append(std::string_view bytes);
  /// Ends the last line, which may have no newline.
  void finish();

 private:
  void add(std::string_view bytes);

  OnMessage on_message_;
  std::string line_;
};

/// read(2) of the log: the number of bytes, or -1 and an errno.
using ReadCall = std::function<ssize_t(char* buffer, std::size_t size)>;

/// Reads records until `read` returns 0, which /dev/kmsg itself never does. Messages that were
/// overwritten before they were read are reported to `on_lost`. Throws "`what`: reason" with the
/// errno's status.
void read_kmsg(const ReadCall& read, const std::string& what, const OnMessage& on_message,
               const std::function<void()>& on_lost);

/// Logs that messages were lost, for `on_lost`.
void warn_of_lost_messages(const std::string& what);

/// Reads lines until `read` returns 0. Throws as read_kmsg().
void read_log(const ReadCall& read, const std::string& what, LogLines& lines);

/// Throws kUsage with "`option`: " unless `path` is a regular file or the kernel's buffer of
/// messages, and with the errno's status if it does not exist. Does not open the file, because
/// opening a pipe would wait for its writer.
void check_can_follow(const std::string& path, const std::string& option);

/// Follows a file of a log. If it is replaced, as logrotate(8) does, the new file is read from its
/// beginning, and the old file is still followed until the next replacement or its removal. If it
/// is truncated, it is read from its beginning.
class LogFile {
 public:
  enum class From { kBeginning, kEnd };

  /// Throws with the errno's status if the file does not exist, or can't be read or watched, and
  /// kNoInput if it is not a regular file.
  LogFile(std::string path, OnMessage on_message, From from);

  /// Readable when there may be more to read.
  [[nodiscard]] int fd() const { return changes_.get(); }
  /// Reads all present bytes. Throws as the constructor; the next call continues where this one
  /// ended, and opens the file again if it could not be read.
  void read();

 private:
  struct File {
    base::UniqueFd fd = {};
    /// The status when the file was opened.
    struct stat status = {};
    LogLines lines;
    bool has_failed = false;
  };

  [[nodiscard]] bool is_replaced() const;
  void read_to_end(File& file);
  void read_old();
  void replace();
  void reopen(File next);
  void watch(const std::string& watched, std::uint32_t events);
  File open();

  std::string path_;
  std::string what_;
  OnMessage on_message_;
  base::UniqueFd changes_;
  File file_;
  /// The file that had the name before.
  std::optional<File> old_;
};

/// Whether `fd` is the kernel's buffer of messages, under any name.
bool is_kmsg(int fd);

}  // namespace fo::canary
