// fo-gpu health.
#pragma once

#include "base/exit_status.h"
#include "options.h"

namespace fo::fo_gpu {

/// Prints the health of all GPUs, or of the one that the options name; kNo if one of them has
/// problems. Throws what cuda::query_gpu_health throws.
base::ExitStatus print_health(const Options& options);

}  // namespace fo::fo_gpu
