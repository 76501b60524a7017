#include "cli/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "cli/output.h"

namespace fo::cli {
namespace {

// The other screen without a cursor; and back.
constexpr std::string_view kTake = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kGiveBack = "\x1b[?25h\x1b[?1049l";

}  // namespace

bool Screen::is_there() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "" &&
         std::string_view(kind) != "dumb";
}

Screen::Size Screen::size() const {
  winsize size{};
  const bool known =
      ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
  return known ? Size{size.ws_row, size.ws_col} : Size{24, 80};
}

void Screen::draw(const std::vector<std::string>& lines) {
  std::string text(taken_ ? "" : kTake);
  taken_ = true;
  text += "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    // Erased first: after a line as wide as the screen, its last character would go.
    text += i == 0 ? "\x1b[K" : "\r\n\x1b[K";
    text += lines[i];
  }
  if (lines.size() < size().lines) text += "\r\n\x1b[J";
  print(text);
  finish_output();
}

void Screen::give_back() noexcept {
  if (!taken_) return;
  taken_ = false;
  // A terminal that is gone needs nothing back.
  [[maybe_unused]] const ssize_t written =
      ::write(STDOUT_FILENO, kGiveBack.data(), kGiveBack.size());
}

}  // namespace fo::cli
