// A whole terminal to draw on, as full-screen programs have it: what stood there before stands
// there again afterwards. What is drawn is written by the caller, who may not want to wait for the
// terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fo::cli {

class Screen {
 public:
  /// Whether stdout is such a terminal.
  static bool is_there();

  /// The terminal is written to through `fd`, which the caller keeps open.
  explicit Screen(int fd);
  ~Screen() { restore(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  struct Size {
    std::size_t lines;
    std::size_t columns;
  };
  /// As it is now.
  [[nodiscard]] Size size() const;

  /// What replaces all that is on it, to be written to it whole, or up to a restore(). The lines
  /// must fit; they may have escape sequences for styles;
  /// colours are left out where they are not wanted.
  [[nodiscard]] std::string drawing(const std::vector<std::string>& lines);

  /// Gives the terminal back as it was, until the next drawing(): before the process is stopped.
  /// Waits a second for one that takes nothing now.
  void restore() noexcept;

 private:
  int fd_;
  bool has_colors_;
  bool taken_ = false;
};

}  // namespace fo::cli
