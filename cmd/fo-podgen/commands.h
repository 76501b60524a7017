// The subcommands of fo-podgen, one function each; it prints the result and returns an exit status.
#pragma once

#include "base/exit_status.h"
#include "options.h"

namespace fo::fo_podgen {

/// Runs without a subcommand: writes the filtered manifests to stdout or to files. If any input is
/// refused, the findings are on stderr and the result is kBadData; then no manifest is written, but
/// a KRM function's ResourceList is, with the findings as results.
base::ExitStatus generate(const Options& options);

/// Prints what generate would do with each deployment, and one line per finding. kBadData if the
/// input would be refused, or, with --strict, if there is a warning.
base::ExitStatus check(const Options& options);

/// Prints one line per difference of the two outputs; kNo if there are any. Refused input is
/// reported on stderr (kBadData).
base::ExitStatus diff(const Options& options);

/// Copies the programs beside the running one, and their private helpers, into the folder of the
/// options. Throws kCannotCreate, and what reading and writing files throws.
base::ExitStatus install(const Options& options);

}  // namespace fo::fo_podgen
