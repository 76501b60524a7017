// TOOL completion SHELL: completion scripts, derived from the declared options, so that they are
// never out of date.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/completion_script.h"

namespace fo::cli {

/// The completion model of `app`, in which all options and subcommands must be declared.
CompletionModel completion_model(const CLI::App& app, const Tool& tool);

/// The result for `words` that begin with "completion"; nullopt for other words, and if the words
/// may be arguments of the tool.
std::optional<ParseResult> answer_completion(const CLI::App& app, const Tool& tool,
                                             const std::vector<std::string>& words);

}  // namespace fo::cli
