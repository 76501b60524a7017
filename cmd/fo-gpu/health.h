// fo-gpu health.
#pragma once

#include "base/exit_status.h"
#include "options.h"

namespace fo::fo_gpu {

/// Prints the health of the GPUs; kNo if one of them has problems.
base::ExitStatus print_health(const Options& options);

}  // namespace fo::fo_gpu
