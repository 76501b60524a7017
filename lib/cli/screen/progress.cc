#include "cli/screen/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/units.h"

namespace fo::cli {
namespace {

constexpr std::size_t kWidestBar = 40;
constexpr std::size_t kUsualColumns = 80;

std::size_t terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

// An error of the terminal must not stop the work.
void draw(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

std::string progress_line(base::ByteCount done, base::ByteCount total,
                          std::chrono::duration<double> elapsed, std::size_t columns) {
  const double part =
      total == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const double rate = elapsed.count() > 0 ? static_cast<double>(done) / elapsed.count() : 0;
  std::string text =
      fmt::format("{:3}%  {} of {}  {}/s", static_cast<int>(part * 100), base::format_size(done),
                  base::format_size(total), base::format_size(static_cast<base::ByteCount>(rate)));
  constexpr std::size_t kFrame = 3;  // brackets and a space
  if (columns > text.size() + kFrame) {
    const std::size_t width = std::min(kWidestBar, columns - text.size() - kFrame);
    const auto filled = static_cast<std::size_t>(part * static_cast<double>(width));
    text = fmt::format("[{:#<{}}{:.<{}}] {}", "", filled, "", width - filled, text);
  }
  return text.substr(0, columns);
}

Progress::Progress(bool quiet)
    : enabled_(!quiet && ::isatty(STDERR_FILENO) == 1), start_(Clock::now()) {}

Progress::~Progress() {
  if (drawn_) draw("\r\033[K");
}

void Progress::show(base::ByteCount done, base::ByteCount total) {
  if (!enabled_) return;
  const auto now = Clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100)) return;
  drawn_ = true;
  last_ = now;
  const std::string line = progress_line(done, total, now - start_, terminal_columns() - 1);
  draw(fmt::format("\r{}\033[K", line));
}

}  // namespace fo::cli
