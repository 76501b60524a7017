// Expands a shell word with variables, as far as their values are known. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pod/shell/environment.h"
#include "pod/shell/shell_word.h"

namespace fo::pod {

/// Returns nullptr for an unknown value.
using ShellValue = std::function<const std::string*(std::string_view name)>;

/// First Kubernetes replaces $(NAME) by values of `environment`, then the shell replaces its
/// variables. nullopt if a value is unknown, and if the result would not be one word.
std::optional<std::string> expand_shell_word(const std::vector<ShellPart>& parts,
                                             const Environment& environment,
                                             const ShellValue& value);

}  // namespace fo::pod
