// TOOL completion SHELL: what a shell is to know of a tool, taken from what the tool declares, so
// that it can't go stale.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/completion_script.h"

namespace fo::cli {

/// Of `app`, which has everything declared.
CompletionModel completion_model(const CLI::App& app, const Tool& tool);

/// What `words`, which begin with "completion", ask for; nullopt when they don't begin so, or may
/// be arguments of the tool.
std::optional<ParseResult> answer_completion(const CLI::App& app, const Tool& tool,
                                             const std::vector<std::string>& words);

}  // namespace fo::cli
