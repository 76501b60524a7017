// Expands a shell word with variables, as far as their values are known. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "pod/shell/environment.h"

namespace fo::pod {

/// Returns nullptr for an unknown value.
using ShellValue = std::function<const std::string*(std::string_view name)>;

/// `source` is the word in the script. First Kubernetes replaces $(NAME) by values of
/// `environment`, then the shell replaces $NAME, ${NAME} and ${NAME:-plain} by its own. nullopt if
/// a value is unknown, for any other expansion, and if the result would not be one word.
std::optional<std::string> expand_shell_word(std::string_view source,
                                             const Environment& environment,
                                             const ShellValue& value);

}  // namespace fo::pod
