// The log line: `tool: level: what 'object': reason`, written to stderr with one write(2);
// optionally with the time in front, or as JSON. There is one threshold, and no files.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace fo::os {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

enum class LogFormat {
  kText,
  /// "2026-11-21T05:33:00.123Z tool: level: …".
  kTimed,
  /// {"level":"info","message":"…","time":"2026-11-21T05:33:00.123Z","tool":"…"}; invalid UTF-8 is
  /// replaced.
  kJson,
};

/// Sets the name at the start of each line, the lowest level that is written, and the format. The
/// run wrapper calls it before any thread exists; later calls have the same name. Default: "fo",
/// kWarning, kText.
void set_log(std::string_view tool, LogLevel threshold, LogFormat format = LogFormat::kText);

/// Whether stderr is connected to systemd's journal, which stamps each line itself.
bool logs_to_journal() noexcept;

[[nodiscard]] bool log_enabled(LogLevel level) noexcept;

/// Writes one line (newlines in `text` become spaces, and it is cut at PIPE_BUF). Write errors are
/// ignored. If stderr is full, the line is dropped at once, or an error line after a second.
void log_line(LogLevel level, std::string_view text) noexcept;

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fo::os
