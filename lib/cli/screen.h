// A whole terminal to draw on, on stdout, as full-screen programs have it: what stood there before
// stands there again afterwards.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fo::cli {

class Screen {
 public:
  /// Whether stdout is a terminal that has one.
  static bool is_there();

  Screen() = default;
  ~Screen() { give_back(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  struct Size {
    std::size_t lines;
    std::size_t columns;
  };
  /// As it is now.
  [[nodiscard]] Size size() const;

  /// Replaces all that is on it. The lines must fit; they may have escape sequences for colours.
  /// Throws Error(kIoError).
  void draw(const std::vector<std::string>& lines);

  /// Gives the terminal back as it was, until the next draw(): before the process is stopped.
  void give_back() noexcept;

 private:
  bool taken_ = false;
};

}  // namespace fo::cli
