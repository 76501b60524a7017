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

// --- Subcommands that use a registry. Those that select records return kNo if there is none.

/// Runs a worker and keeps its record; returns the worker's exit status.
base::ExitStatus run(const Options& options);
/// Keeps the record of a worker until a signal arrives, or writes a record of another kind.
base::ExitStatus put(const Options& options);
base::ExitStatus rm(const Options& options);
base::ExitStatus drain(const Options& options);
base::ExitStatus undrain(const Options& options);
base::ExitStatus set(const Options& options);
base::ExitStatus ls(const Options& options);
base::ExitStatus get(const Options& options);
base::ExitStatus watch(const Options& options);
base::ExitStatus check_registry(const Options& options);

}  // namespace fo::fo_reg
