// Suggests the known name that was meant. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fo::text {

/// The name of `known` with the smallest edit distance to `name`, ignoring case and leading dashes;
/// the first of several. nullopt if `name` has one letter or more than a third of the letters
/// differ from all.
std::optional<std::string_view> nearest_name(std::string_view name,
                                             const std::vector<std::string_view>& known);

/// "; did you mean 'KNOWN'?" for that name; empty if there is none.
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace fo::text
