// What gms-stat writes for people: text of others made safe for a terminal, and cells in columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fo::text {

/// Text of a peer on a terminal: no control characters, no endless lines.
std::string shown(std::string_view text);

/// The same for a message that is full of quotes of its own, and may have a peer's words in it.
std::string one_line(std::string_view message);

/// Cells in columns as wide as their widest, two spaces between.
class TextTable {
 public:
  /// One letter per column: 'r' for numbers, which stand to the right, 'l' for the rest.
  explicit TextTable(std::string alignment)
      : alignment_(std::move(alignment)), widths_(alignment_.size()) {}

  /// As many cells as there are columns.
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
