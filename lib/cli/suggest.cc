#include "cli/suggest.h"

#include <algorithm>

#include "base/error.h"
#include "text/edit_distance.h"

namespace fo::cli {
namespace {

// Longer than any known name; it bounds the cost for any input.
constexpr std::size_t kLongest = 64;

std::string_view without_dashes(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  return word;
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string_view typed = without_dashes(word);
  if (typed.size() < 2 || typed.size() > kLongest) return {};
  const std::string* nearest = nullptr;
  std::size_t least = 0;
  for (const std::string& one : known) {
    const std::string_view name = without_dashes(one);
    const std::size_t distance = text::edit_distance(typed, name);
    const std::size_t most = std::max({std::size_t{3}, typed.size(), name.size()}) / 3;
    if (distance > most || (nearest != nullptr && distance >= least)) continue;
    nearest = &one;
    least = distance;
  }
  return nearest == nullptr ? std::string() : "; did you mean " + base::quoted(*nearest) + "?";
}

}  // namespace fo::cli
