#include "os/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string>

namespace fo::os {
namespace {

// For the line that says why a program ends.
constexpr int kErrorPatienceMs = 1000;

struct LogSettings {
  std::string tool = "fo";
  LogLevel threshold = LogLevel::kWarning;
};

LogSettings& settings() {
  static LogSettings settings;
  return settings;
}

}  // namespace

void set_log(std::string_view tool, LogLevel threshold) {
  settings() = {std::string(tool), threshold};
}

bool log_enabled(LogLevel level) noexcept { return level <= settings().threshold; }

void log_line(LogLevel level, std::string_view text) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"error", "warning", "info", "debug"};
  std::string line = settings().tool;
  line += ": ";
  line += kNames[static_cast<std::size_t>(level)];
  line += ": ";
  line += text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  line.resize(std::min<std::size_t>(line.size(), PIPE_BUF - 1));
  line += '\n';
  // A pipe with room has room for PIPE_BUF bytes, so that the write can't block.
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&ready, 1, level == LogLevel::kError ? kErrorPatienceMs : 0) == 0) return;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace fo::os
