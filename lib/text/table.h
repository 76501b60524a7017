// Text for terminals: strings of peers made safe, and cells in columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fo::text {

/// A peer's text for a terminal: base::quoted without the quotes around it, so that control
/// characters and quotes are escaped, and a long text is cut.
std::string shown(std::string_view text);

/// The same for each part between the quotes of a message; the quotes themselves are kept.
std::string shown_message(std::string_view message);

/// Cells in columns as wide as their widest cell, separated by two spaces.
class TextTable {
 public:
  /// One letter per column: 'r' aligns right (numbers), 'l' left.
  explicit TextTable(std::string alignment)
      : alignment_(std::move(alignment)), widths_(alignment_.size()) {}

  /// Adds a row; there must be as many cells as columns.
  void add(std::vector<std::string> cells);

  /// A line for each row, after `indent`.
  [[nodiscard]] std::string text(std::string_view indent = "") const;

  /// The rows, each cell as wide as its column.
  [[nodiscard]] std::vector<std::vector<std::string>> padded() const;

 private:
  std::string alignment_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace fo::text
