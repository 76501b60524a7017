// The subcommands of fo-canary, one function each; it prints the result and returns an exit status.
#pragma once

#include "options.h"

namespace fo::fo_canary {

/// Lifts the convictions of a worker; 1 if it has none.
int acquit(const Options& options);

}  // namespace fo::fo_canary
