// The subcommands of fo-reg, one function each; it prints the result and returns an exit status.
#pragma once

#include "base/exit_status.h"
#include "options.h"

namespace fo::fo_reg {

/// Prints the endpoint ids of deployments.
base::ExitStatus id(const Options& options);

/// Prints the card of a model folder.
base::ExitStatus card(const Options& options);

/// Prints how two cards differ. kNo unless their workers may share traffic, migrate requests, and
/// pair.
base::ExitStatus explain(const Options& options);

}  // namespace fo::fo_reg
