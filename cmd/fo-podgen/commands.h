// What fo-podgen does, a function for each subcommand; each returns an exit status and prints its
// result.
#pragma once

#include "base/exit_status.h"
#include "options.h"

namespace fo::fo_podgen {

/// Without a subcommand. Refused input is said on stderr (kBadData), and nothing is written.
base::ExitStatus generate(const Options& options);

/// Prints what is wrong, a line each. kBadData when any of it would be refused.
base::ExitStatus check(const Options& options);

/// Prints how the outputs differ, a line each. kNo when they do.
base::ExitStatus diff(const Options& options);

/// Copies the programs beside the running one, and their private helpers.
base::ExitStatus install(const Options& options);

}  // namespace fo::fo_podgen
