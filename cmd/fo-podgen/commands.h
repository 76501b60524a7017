// The subcommands of fo-podgen, one function each; it prints the result and returns an exit status.
#pragma once

#include "base/exit_status.h"
#include "options.h"

namespace fo::fo_podgen {

/// Without a subcommand. Refused input is reported on stderr (kBadData), and nothing is written.
base::ExitStatus generate(const Options& options);

/// Prints one line per finding. kBadData if the input would be refused.
base::ExitStatus check(const Options& options);

/// Prints one line per difference of the outputs. kNo if there are any.
base::ExitStatus diff(const Options& options);

/// Copies the programs beside the running one, and their private helpers.
base::ExitStatus install(const Options& options);

}  // namespace fo::fo_podgen
