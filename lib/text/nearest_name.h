// The known name that somebody may have meant. Pure.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace fo::text {

/// Of `known`, the one that the fewest changes of a character (missing, added, another, or two
/// swapped; case counts nothing) turn into `name`; none when all are further than a third of its
/// length. The first of several.
std::optional<std::string_view> nearest_name(std::string_view name,
                                             const std::vector<std::string_view>& known);

}  // namespace fo::text
