// The process that was started: vLLM's or SGLang's HTTP server, or a worker of Dynamo's with its
// status server. It has no GPU and asks the engine core for everything.
#pragma once

#include "base/unique_fd.h"
#include "os/process.h"
#include "support/worker/launch.h"

namespace fo::stand_in {

/// Serves until SIGTERM or SIGINT (0), or until the engine core dies (1). Then the core is gone.
int run_front_end(const Launch& launch, os::Child core, base::UniqueFd core_socket);

}  // namespace fo::stand_in
