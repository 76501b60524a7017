#include "text/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace fo::text {

std::string shown(std::string_view text) {
  const std::string quoted = base::quoted(text);
  return quoted.substr(1, quoted.size() - 2);
}

std::string shown_message(std::string_view message) {
  std::string line;
  for (;;) {
    const std::size_t quote = message.find('\'');
    line += shown(message.substr(0, quote));
    if (quote == std::string_view::npos) return line;
    line += '\'';
    message.remove_prefix(quote + 1);
  }
}

void TextTable::add(std::vector<std::string> cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) widths_[i] = std::max(widths_[i], cells[i].size());
  rows_.push_back(std::move(cells));
}

std::vector<std::vector<std::string>> TextTable::padded() const {
  std::vector<std::vector<std::string>> rows = rows_;
  for (auto& cells : rows) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      cells[i] = alignment_[i] == 'r' ? fmt::format("{:>{}}", cells[i], widths_[i])
                                      : fmt::format("{:<{}}", cells[i], widths_[i]);
    }
  }
  return rows;
}

std::string TextTable::text(std::string_view indent) const {
  std::string out;
  for (const auto& cells : padded()) {
    std::string line = fmt::format("{}{}", indent, fmt::join(cells, "  "));
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace fo::text
