// What a shell makes of a word with variables in it, as far as they are known. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "pod/shell/environment.h"

namespace fo::pod {

/// nullptr where what a variable says is not known.
using ShellValue = std::function<const std::string*(std::string_view name)>;

/// `source` is the word as it stands in the script: Kubernetes puts values of `environment` in
/// place of $(NAME) before a shell sees it, which puts its own in place of $NAME, ${NAME} and
/// ${NAME:-plain}. nullopt where any of them is not known, where something else is to be expanded,
/// or where it would not be one word.
std::optional<std::string> expand_shell_word(std::string_view source,
                                             const Environment& environment,
                                             const ShellValue& value);

}  // namespace fo::pod
