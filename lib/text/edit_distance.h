// The distance of two words, to suggest the one that was meant. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace fo::text {

/// Returns the number of characters that must be inserted, removed, replaced or swapped with the
/// next to turn one word into the other. The running time is the product of their lengths.
inline std::size_t edit_distance(std::string_view from, std::string_view to) {
  // Rows of the usual table: the last but one, the last, and the current one.
  std::vector<std::size_t> older(to.size() + 1);
  std::vector<std::size_t> old(to.size() + 1);
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    older.swap(old);
    old.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const bool same = from[i - 1] == to[j - 1];
      row[j] = std::min({old[j] + 1, row[j - 1] + 1, old[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        row[j] = std::min(row[j], older[j - 2] + 1);
      }
    }
  }
  return row[to.size()];
}

}  // namespace fo::text
