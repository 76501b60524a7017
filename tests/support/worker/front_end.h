// The started process: vLLM's or SGLang's HTTP server, or a Dynamo worker with its status server.
// It has no GPU and sends all requests to the engine core.
#pragma once

#include "base/unique_fd.h"
#include "os/process/process.h"
#include "support/worker/launch.h"

namespace fo::stand_in {

/// Serves until SIGTERM or SIGINT (0), or until the engine core dies (1). Ends the core, too.
int run_front_end(const Launch& launch, os::Child core, base::UniqueFd core_socket);

}  // namespace fo::stand_in
