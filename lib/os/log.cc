#include "os/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

namespace fo::os {
namespace {

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
  line += '\n';
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace fo::os
