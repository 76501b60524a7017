#include "cli/screen/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string_view>

#include "os/process/exec.h"

namespace fo::cli {
namespace {

// Switches to the alternate screen without a cursor, and back.
constexpr std::string_view kTake = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kGiveBack = "\x1b[?25h\x1b[?1049l";
// The timeout for restoring a terminal that accepts no output.
constexpr int kPatienceMs = 1000;

bool is_capable_terminal(int fd) {
  const std::string kind = os::variable("TERM");
  return !kind.empty() && kind != "dumb" && ::isatty(fd) == 1;
}

}  // namespace

Screen::Screen(int fd)
    : fd_(fd), has_colors_(os::variable("NO_COLOR").empty() && is_capable_terminal(fd)) {}

bool Screen::is_there() { return is_capable_terminal(STDOUT_FILENO); }

Screen::Size Screen::size() const {
  winsize size{};
  const bool known = ::ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
  return known ? Size{size.ws_row, size.ws_col} : Size{24, 80};
}

std::string Screen::drawing(const std::vector<std::string>& lines) {
  std::string text(taken_ ? "" : kTake);
  taken_ = true;
  text += "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    // Erased first: after a line as wide as the screen, erasing would remove its last character.
    text += i == 0 ? "\x1b[K" : "\r\n\x1b[K";
    text += lines[i];
  }
  if (lines.size() < size().lines) text += "\r\n\x1b[J";
  return text;
}

void Screen::restore() noexcept {
  if (!taken_) return;
  taken_ = false;
  // A closed terminal is not restored.
  pollfd ready{fd_, POLLOUT, 0};
  if (::poll(&ready, 1, kPatienceMs) != 1) return;
  [[maybe_unused]] const ssize_t written = ::write(fd_, kGiveBack.data(), kGiveBack.size());
}

}  // namespace fo::cli
