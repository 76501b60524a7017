// Suggests the known name that was meant. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fo::text {

/// The name of `known` with the smallest edit distance to `name`, ignoring case and leading dashes;
/// the first of several. nullopt if `name` has fewer than 2 or over 64 characters, and if each
/// known name needs more edits than a third of the longer name's length (one edit is always
/// allowed).
std::optional<std::string_view> nearest_name(std::string_view name,
                                             const std::vector<std::string_view>& known);

/// "; did you mean 'KNOWN'?" with the result of nearest_name; empty if there is none.
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace fo::text
