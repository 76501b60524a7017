#include "pod/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "pod/ascii.h"

namespace fo::pod {
namespace {

/// No field has a longer name: comparing stays cheap whatever the input says.
constexpr std::size_t kLongest = 64;

std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> before(to.size() + 1);
  std::vector<std::size_t> last(to.size() + 1);
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const bool same = lower(from[i - 1]) == lower(to[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0U : 1U)});
      if (i > 1 && j > 1 && lower(from[i - 1]) == lower(to[j - 2]) &&
          lower(from[i - 2]) == lower(to[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[to.size()];
}

}  // namespace

std::optional<std::string_view> nearest_name(std::string_view name,
                                             const std::vector<std::string_view>& known) {
  if (name.size() > kLongest) return std::nullopt;
  std::optional<std::string_view> nearest;
  std::size_t best = std::max<std::size_t>(name.size() / 3, 1) + 1;
  for (const std::string_view one : known) {
    if (one.size() > kLongest) continue;
    const std::size_t changes = distance(name, one);
    if (changes < best) {
      best = changes;
      nearest = one;
    }
  }
  return nearest;
}

}  // namespace fo::pod
