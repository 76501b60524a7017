// Draws on a whole terminal, and restores the terminal's content afterwards. The caller writes the
// drawing itself, so that it need not wait for the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fo::cli {

class Screen {
 public:
  /// Whether stdout is a terminal that supports escape sequences: $TERM is set, not empty and not
  /// "dumb".
  static bool is_there();

  /// Writes to the terminal through `fd`, which the caller keeps open.
  explicit Screen(int fd);
  ~Screen() { restore(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  struct Size {
    std::size_t lines;
    std::size_t columns;
  };
  /// The current size.
  [[nodiscard]] Size size() const;
  /// Whether to draw in colours: unless $NO_COLOR is set and not empty (https://no-color.org).
  [[nodiscard]] bool has_colors() const { return has_colors_; }

  /// The bytes that replace the whole screen. The caller writes all of them, unless restore() is
  /// called meanwhile. The lines must fit; they may contain escape sequences for styles, and for
  /// colours if has_colors().
  [[nodiscard]] std::string drawing(const std::vector<std::string>& lines);

  /// Restores the terminal until the next drawing(), for example before the process is stopped.
  /// Waits up to a second if the terminal accepts no output.
  void restore() noexcept;

 private:
  int fd_;
  bool has_colors_;
  bool taken_ = false;
};

}  // namespace fo::cli
