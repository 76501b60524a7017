// The log line: `tool: level: what 'object': reason`, one write(2) to stderr each. Not a framework:
// one threshold, no files, no formats.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace fo::os {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

/// Sets the name that begins each line and the least important level that is written.
/// Called once by the run wrapper before any thread exists. Without it: "fo", kWarning.
void set_log(std::string_view tool, LogLevel threshold);

[[nodiscard]] bool log_enabled(LogLevel level) noexcept;

/// Writes one line (newlines in `text` become spaces, what is beyond PIPE_BUF is cut). A stderr
/// that can't be written is ignored, and one that nobody reads holds nobody up: the line is
/// dropped, an error after a second.
void log_line(LogLevel level, std::string_view text) noexcept;

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fo::os
