#include "text/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "text/ascii.h"
#include "text/edit_distance.h"

namespace fo::text {
namespace {

/// Longer than any field's name; it bounds the cost for any input.
constexpr std::size_t kLongest = 64;

}  // namespace

std::optional<std::string_view> nearest_name(std::string_view name,
                                             const std::vector<std::string_view>& known) {
  if (name.size() > kLongest) return std::nullopt;
  const std::string typed = lower(name);
  std::optional<std::string_view> nearest;
  std::size_t best = std::max<std::size_t>(name.size() / 3, 1) + 1;
  for (const std::string_view one : known) {
    if (one.size() > kLongest) continue;
    const std::size_t changes = edit_distance(typed, lower(one));
    if (changes < best) {
      best = changes;
      nearest = one;
    }
  }
  return nearest;
}

}  // namespace fo::text
