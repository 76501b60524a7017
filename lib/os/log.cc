#include "os/log.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "text/time_text.h"

namespace fo::os {
namespace {

// For the line with the reason of a program's end.
constexpr int kErrorPatienceMs = 1000;

struct LogSettings {
  std::string tool = "fo";
  std::atomic<LogLevel> threshold = LogLevel::kWarning;
  std::atomic<LogFormat> format = LogFormat::kText;
};

LogSettings& settings() {
  static LogSettings settings;
  return settings;
}

constexpr std::size_t kMaxBytes = PIPE_BUF - 1;

const char* name_of(LogLevel level) {
  constexpr std::array<const char*, 4> kNames{"error", "warning", "info", "debug"};
  return kNames[static_cast<std::size_t>(level)];
}

std::string as_text(LogLevel level, std::string_view text) {
  std::string line;
  if (settings().format == LogFormat::kTimed) {
    line = text::format_time(std::chrono::system_clock::now()) + " ";
  }
  line += settings().tool;
  line += ": ";
  line += name_of(level);
  line += ": ";
  line += text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  line.resize(std::min(line.size(), kMaxBytes));
  return line;
}

std::string as_json(LogLevel level, std::string_view text) {
  const std::string time = text::format_time(std::chrono::system_clock::now());
  // An escaped character takes up to six bytes.
  for (std::size_t bytes = std::min(text.size(), kMaxBytes);; bytes /= 2) {
    const nlohmann::json object{{"level", name_of(level)},
                                {"message", text.substr(0, bytes)},
                                {"time", time},
                                {"tool", settings().tool}};
    std::string line = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (line.size() <= kMaxBytes || bytes == 0) return line;
  }
}

}  // namespace

void set_log(std::string_view tool, LogLevel threshold, LogFormat format) {
  // Other threads may read the name.
  if (settings().tool != tool) settings().tool = tool;
  settings().threshold = threshold;
  settings().format = format;
}

bool logs_to_journal() noexcept {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat info {};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &info) != 0) return false;
  return stream == std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
}

bool log_enabled(LogLevel level) noexcept { return level <= settings().threshold; }

void log_line(LogLevel level, std::string_view text) noexcept {
  std::string line =
      settings().format == LogFormat::kJson ? as_json(level, text) : as_text(level, text);
  line += '\n';
  // A writable pipe has room for PIPE_BUF bytes, so the write cannot block.
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&ready, 1, level == LogLevel::kError ? kErrorPatienceMs : 0) == 0) return;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace fo::os
