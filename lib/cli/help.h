// The layout of --help: names and types of values on the left; meaning, default and environment on
// the right; further variables at the end. It fits a screen.
#pragma once

#include <memory>

#include "cli/app.h"

namespace CLI {
class FormatterBase;
}

namespace fo::cli {

std::shared_ptr<CLI::FormatterBase> help_formatter(const Tool& tool);

/// Whether `app` runs something itself, or only its subcommands do.
bool runs_itself(const CLI::App& app);

/// Whether the words after "--" are a command for `app`, which is the tool or a subcommand.
bool takes_command(const CLI::App& app, const Tool& tool);

}  // namespace fo::cli
