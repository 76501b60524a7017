// How --help looks: names and kinds of values on the left; what they mean, default and environment
// on the right; further variables at the end. It fits a screen.
#pragma once

#include <memory>

#include "cli/app.h"

namespace CLI {
class FormatterBase;
}

namespace fo::cli {

std::shared_ptr<CLI::FormatterBase> help_formatter(const Tool& tool);

/// Does it do something, not only one of its subcommands?
bool runs_itself(const CLI::App& app);

/// Whether the words after "--" are a command where the words before them ask for `app`, the tool
/// or one of its subcommands.
bool takes_command(const CLI::App& app, const Tool& tool);

}  // namespace fo::cli
