// The log line: `tool: level: what 'object': reason`, one write(2) to stderr each, with the time in
// front, or as JSON, where that is wanted. Not a framework: one threshold, no files.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace fo::os {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

enum class LogFormat {
  kText,
  /// "2026-11-21T05:33:00.123Z tool: level: …".
  kTimed,
  /// {"level":"info","message":"…","time":"2026-11-21T05:33:00.123Z","tool":"…"}; what is not UTF-8
  /// is replaced.
  kJson,
};

/// Sets the name that begins each line, the least important level that is written, and how.
/// Called by the run wrapper before any thread exists. Without it: "fo", kWarning, kText.
void set_log(std::string_view tool, LogLevel threshold, LogFormat format = LogFormat::kText);

/// Does stderr go to systemd's journal, which keeps the time of each line itself?
bool logs_to_journal() noexcept;

[[nodiscard]] bool log_enabled(LogLevel level) noexcept;

/// Writes one line (newlines in `text` become spaces, what would be beyond PIPE_BUF is cut). A
/// stderr that can't be written is ignored, and one that nobody reads holds nobody up: the line is
/// dropped, an error after a second.
void log_line(LogLevel level, std::string_view text) noexcept;

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fo::os
