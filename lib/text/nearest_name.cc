#include "text/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "text/ascii.h"
#include "text/edit_distance.h"

namespace fo::text {
namespace {

// Longer than any known name; it bounds the cost for any input.
constexpr std::size_t kLongest = 64;

std::string_view without_dashes(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  return word;
}

}  // namespace

std::optional<std::string_view> nearest_name(std::string_view name,
                                             const std::vector<std::string_view>& known) {
  if (name.size() > kLongest) return std::nullopt;
  const std::string typed = lower(without_dashes(name));
  if (typed.size() < 2) return std::nullopt;
  std::optional<std::string_view> nearest;
  std::size_t best = kLongest;
  for (const std::string_view one : known) {
    if (one.size() > kLongest) continue;
    const std::string meant = lower(without_dashes(one));
    const std::size_t changes = edit_distance(typed, meant);
    if (changes < best && changes <= std::max({std::size_t{3}, typed.size(), meant.size()}) / 3) {
      best = changes;
      nearest = one;
    }
  }
  return nearest;
}

}  // namespace fo::text
