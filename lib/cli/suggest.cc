#include "cli/suggest.h"

#include <algorithm>

#include "base/error.h"

namespace fo::cli {
namespace {

// No name is longer; what is typed may be.
constexpr std::size_t kLongest = 64;

std::string_view without_dashes(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  return word;
}

}  // namespace

std::size_t edit_distance(std::string_view from, std::string_view to) {
  // Rows of the usual table: the one before the last, the last, and this one.
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

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string_view typed = without_dashes(word);
  if (typed.size() < 2 || typed.size() > kLongest) return {};
  const std::string* nearest = nullptr;
  std::size_t least = 0;
  for (const std::string& one : known) {
    const std::string_view name = without_dashes(one);
    const std::size_t distance = edit_distance(typed, name);
    const std::size_t most = std::max<std::size_t>(3, std::max(typed.size(), name.size())) / 3;
    if (distance > most || (nearest != nullptr && distance >= least)) continue;
    nearest = &one;
    least = distance;
  }
  return nearest == nullptr ? std::string() : "; did you mean " + base::quoted(*nearest) + "?";
}

}  // namespace fo::cli
