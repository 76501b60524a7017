#include "text/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/error.h"
#include "text/ascii.h"

namespace fo::text {
namespace {

// Longer than any known name; it bounds the cost for any input.
constexpr std::size_t kMaxLength = 64;

std::string_view without_dashes(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  return word;
}

// The number of characters that must be inserted, removed, replaced or swapped with the next one to
// turn one word into the other. The running time is proportional to the product of their lengths.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  // Rows of the dynamic programming table: the last but one, the last, and the current one.
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

}  // namespace

std::optional<std::string_view> nearest_name(std::string_view name,
                                             const std::vector<std::string_view>& known) {
  if (name.size() > kMaxLength) return std::nullopt;
  const std::string typed = lower(without_dashes(name));
  if (typed.size() < 2) return std::nullopt;
  std::optional<std::string_view> nearest;
  std::size_t best = kMaxLength;
  for (const std::string_view one : known) {
    if (one.size() > kMaxLength) continue;
    const std::string meant = lower(without_dashes(one));
    const std::size_t changes = edit_distance(typed, meant);
    if (changes < best && changes <= std::max({std::size_t{3}, typed.size(), meant.size()}) / 3) {
      best = changes;
      nearest = one;
    }
  }
  return nearest;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& known) {
  const auto nearest = nearest_name(name, known);
  return nearest ? "; did you mean " + base::quoted(*nearest) + "?" : "";
}

}  // namespace fo::text
